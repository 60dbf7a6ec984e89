"""A call in which a rank is stuck.

Probe: the call goes through a timer that needs neither the other ranks nor the GIL. After ten seconds the stuck rank prints
the stacks of all its threads and ends, so the failure is on the right rank.
"""

import ast

from forkpoint.model.verdict import Probe
from forkpoint.remedies.edit import handed_over
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import WITHIN
from forkpoint.source.analysis import Analysis
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.code import Function
from forkpoint.source.syntax import ancestors, last_word, shortened

_DEPTH = 3


def end_when_stuck(fork: Fork, scene: Scene) -> Probe | None:
    held = _held_call(fork.node, fork.function, scene.analysis, _DEPTH) if fork.kind is ForkKind.HELD else None
    if held is None:
        return None
    call, function = held
    module = function.module
    text = shortened(module.source(call))
    what = f"`{text}` ({scene.where(module, call)})"
    title = f"Limit `{text}` to ten seconds: a rank that takes longer prints its stacks and ends."
    return scene.probe(title, module, call, handed_over(call, f"_forkpoint_within({what!r}", module), [WITHIN])


def _held_call(node: ast.AST, function: Function, analysis: Analysis, depth: int) -> tuple[ast.Call, Function] | None:
    """The call in which the rank is stuck. If it is in a polling loop, the call of the function with that loop."""
    call = next((n for n in ast.walk(_head(node)) if isinstance(n, ast.Call)), None)
    loops = any(isinstance(outer, ast.While | ast.For) for outer, _ in ancestors(node, function))
    if call is not None and last_word(call) != "sleep" and not (loops and _polls(node, function)):
        return None if analysis.communication.reach(call, function) else (call, function)
    sites = list(analysis.resolver.call_sites(function))
    return _held_call(sites[0][0], sites[0][1], analysis, depth - 1) if depth and len(sites) == 1 else None


def _head(node: ast.AST) -> ast.AST:
    """The part of a statement that is evaluated first."""
    if isinstance(node, ast.With):
        return node.items[0].context_expr
    for name in ("test", "value"):
        part = getattr(node, name, None)
        if isinstance(node, ast.stmt) and isinstance(part, ast.expr):
            return part
    return node if isinstance(node, ast.expr) else ast.Pass()


def _polls(node: ast.AST, function: Function) -> bool:
    """The loop around it sleeps between its rounds."""
    loop = next(outer for outer, _ in ancestors(node, function) if isinstance(outer, ast.While | ast.For))
    return any(isinstance(n, ast.Call) and last_word(n) == "sleep" for n in ast.walk(loop))
