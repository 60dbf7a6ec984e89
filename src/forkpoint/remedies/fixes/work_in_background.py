"""Run the work of one rank in a thread, so that the others do not wait for it.

For a call under a condition on the rank that does not communicate and whose result is not used: it runs in a thread, on
a copy of its arguments. This does not solve what the call waits for: if it has not finished when the job ends, its work
is lost and a message says so.
"""

import ast
from collections.abc import Iterator

from forkpoint.model.verdict import Fix
from forkpoint.remedies.edit import definitions, free_name, handed_over
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import IN_BACKGROUND
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.code import Function
from forkpoint.source.syntax import ancestors, shortened

_DEPTH = 4


def offer(fork: Fork, scene: Scene) -> Fix | None:
    if fork.kind is not ForkKind.HELD:
        return None
    found = next(_of_one_rank(fork.node, fork.function, scene.analysis, _DEPTH), None)
    if found is None:
        return None
    call, function = found
    module = function.module
    name = free_name("in_background", module)
    edits = handed_over(call, f"{name}(", module)
    patch = scene.patch(module, [definitions(module, [IN_BACKGROUND.format(name=name)]), *edits]) if edits else None
    text, where = shortened(module.source(call)), scene.where(module, call)
    title = (
        f"Run `{text}` ({where}) in a thread, on a copy of its arguments, so that the other ranks do not wait for it. This "
        "does not solve what the call itself waits for: work that never finishes is lost."
    )
    return Fix(title, patch) if patch else None


def _of_one_rank(
    node: ast.AST, function: Function, analysis: Analysis, depth: int
) -> Iterator[tuple[ast.Call, Function]]:
    """The statement around the node, or around a call that leads to it, that only some ranks reach."""
    statement = next((o for o, _ in ((node, node), *ancestors(node, function)) if isinstance(o, ast.stmt)), None)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and _is_by_rank(call, function, analysis):
        yield call, function
    elif depth:
        for call, caller in analysis.resolver.call_sites(function):
            yield from _of_one_rank(call, caller, analysis, depth - 1)


def _is_by_rank(call: ast.Call, function: Function, analysis: Analysis) -> bool:
    return analysis.communication.reach(call, function) is None and any(
        reason.origin is Origin.RANK
        for outer, _ in ancestors(call, function)
        if isinstance(outer, ast.If)
        for reason in analysis.differences.test(outer.test, function).reasons
    )
