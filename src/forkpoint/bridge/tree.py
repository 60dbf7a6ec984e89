"""Questions to the syntax of a function: its decisions, what stands in them, what its calls run."""

import ast
from collections.abc import Iterator, Sequence

from forkpoint.bridge.places import Place
from forkpoint.source.analysis import Analysis
from forkpoint.source.code import Function
from forkpoint.source.syntax import last_word

Deciding = ast.If | ast.For | ast.AsyncFor | ast.While | ast.IfExp
_NESTED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


def enclosing(place: Place) -> Iterator[Deciding]:
    """Branches and loops in whose body a line stands, the innermost first."""
    found = [n for n in deciding(place.function) if _in_body(n, place.line)]
    yield from reversed(found)


def deciding(function: Function) -> Iterator[Deciding]:
    """All of a function, outer ones first."""
    pending: list[ast.AST] = list(reversed(function.body))
    while pending:
        node = pending.pop()
        if isinstance(node, _NESTED):
            continue
        if isinstance(node, Deciding):
            yield node
        pending.extend(reversed(list(ast.iter_child_nodes(node))))


def head(node: Deciding) -> ast.expr:
    return node.iter if isinstance(node, ast.For | ast.AsyncFor) else node.test


def _in_body(node: Deciding, line: int) -> bool:
    if isinstance(node, ast.IfExp):
        return False
    blocks: Sequence[Sequence[ast.stmt]] = (node.body, node.orelse)
    return any(b and b[0].lineno <= line <= (b[-1].end_lineno or 0) for b in blocks)


def way_of(node: Deciding, line: int) -> str:
    """What a rank did at a branch or loop in whose body a line stands: `went in here`, or `took the `else` here`."""
    other = node.orelse if not isinstance(node, ast.IfExp) else ()
    in_else = bool(other) and other[0].lineno <= line <= (other[-1].end_lineno or 0)
    return "took the `else` here" if in_else else "went in here"


def callees_between(
    lines: range, function: Function, analysis: Analysis, depth: int
) -> Iterator[tuple[Function, ast.Call, int]]:
    """Functions that the calls on these lines run, and what those run in turn."""
    seen = {function}
    pending = [(function, call, 0) for call in function.calls if call.lineno in lines]
    while pending:
        caller, call, level = pending.pop(0)
        for callee in analysis.resolver.callees(call, caller).functions:
            if callee not in seen:
                seen.add(callee)
                yield callee, call, level + 1
                if level + 1 < depth:
                    pending.extend((callee, c, level + 1) for c in callee.calls)


def names_in(expr: ast.AST) -> frozenset[str]:
    """Names and attributes that stand in it."""
    return frozenset(last_word(n) for n in ast.walk(expr) if isinstance(n, ast.Name | ast.Attribute))
