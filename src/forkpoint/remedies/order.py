"""Loops whose order is not defined."""

import ast

from forkpoint.bridge.fork import Fork, ForkKind
from forkpoint.remedies.together import made_of
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin
from forkpoint.source.syntax import ancestors, last_word


def unordered_loop(fork: Fork, analysis: Analysis) -> ast.For | None:
    """The loop of the fork, or the nearest loop around it, over a set or a directory listing."""
    if fork.kind is not ForkKind.ORDER:
        return None
    around = (fork.node, *(outer for outer, _ in ancestors(fork.node, fork.function)))
    return next((n for n in around if isinstance(n, ast.For) and _is_unordered(n, fork, analysis)), None)


def _is_unordered(loop: ast.For, fork: Fork, analysis: Analysis) -> bool:
    reasons = analysis.differences.test(loop.iter, fork.function).reasons
    made = (expr for expr, _ in made_of(loop.iter, fork.function, analysis))
    return any(r.origin in {Origin.ORDER, Origin.FILES} for r in reasons) or any(_is_set(e) for e in (loop.iter, *made))


def _is_set(expr: ast.expr) -> bool:
    called = last_word(expr) in {"set", "frozenset"} if isinstance(expr, ast.Call) else False
    return called or isinstance(expr, ast.Set | ast.SetComp)
