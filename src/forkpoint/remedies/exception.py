"""An exception that only some ranks see, and that is caught.

Probe: one line at the top of the handler ends the rank that caught the exception and names it; Python shows the exception
above. Other ranks do not enter the handler.

Fix: the call that raises goes through a small function in which ranks agree, so all of them raise at the same place, enter
the same handler, and skip the same step. What the others did in that step is lost. Only if the call that raises is known,
does not communicate, and is reached by all ranks.
"""

import ast
import builtins
from collections.abc import Iterator

from forkpoint.model.verdict import Fix, Probe
from forkpoint.remedies.edit import free_name, handed_over, line_before
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import RAISE_TOGETHER, agreement, torch_names
from forkpoint.remedies.together import meet
from forkpoint.source.analysis import Analysis
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.code import Class, Function, spelled
from forkpoint.source.syntax import ancestors, last_word, own_nodes, shortened

_DEPTH = 4
_TAKES_TEXT = frozenset({
    "ArithmeticError", "Exception", "FileNotFoundError", "IOError", "IndexError", "LookupError", "MemoryError", "OSError",
    "OutOfMemoryError", "OverflowError", "RuntimeError", "TimeoutError", "ValueError", "ZeroDivisionError",
})  # fmt: skip
"""Exceptions of Python and torch that take one message."""


def end_where_caught(fork: Fork, scene: Scene) -> Probe | None:
    handler = fork.node
    if fork.kind is not ForkKind.CAUGHT or not isinstance(handler, ast.ExceptHandler):
        return None
    module = fork.function.module
    caught = spelled(handler.type) if handler.type else None
    named = f"`{caught}`" if caught else "an exception"
    dist = torch_names(module).dist_anywhere
    says = f"caught {named} ({scene.where(module, handler)}) and would go on without the others"
    text = f'raise BaseException(f"forkpoint probe: rank {{{dist}.get_rank()}} {says}")  # forkpoint probe'
    title = f"End the rank that catches {named} immediately, instead of letting it continue without the others."
    return scene.probe(title, module, handler, [line_before(handler.body[0], text, module)])


def raise_together(fork: Fork, scene: Scene) -> Fix | None:
    handler = fork.node
    if fork.kind is not ForkKind.CAUGHT or not isinstance(handler, ast.ExceptHandler) or not scene.in_default_group:
        return None
    error = spelled(handler.type) if handler.type else None
    body = next((o.body for o, _ in ancestors(handler, fork.function) if isinstance(o, ast.Try)), None)
    if error is None or body is None or not _takes_text(handler, fork.function, scene.analysis):
        return None
    sites = dict.fromkeys(_raising(body, fork.function, error.rpartition(".")[2], scene.analysis, _DEPTH))
    if len(sites) != 1:
        return None
    call, function = next(iter(sites))
    module = function.module
    known = {*module.imports, *module.classes, *dir(builtins)}
    if error.partition(".")[0] not in known or not meet(call, function, scene.analysis, equally_often=True):
        return None
    agreed, name = agreement("any_rank", module, ""), free_name("raise_together", module)
    texts = [agreed.text, RAISE_TOGETHER.format(name=name, agree=agreed.name)]
    text, where = shortened(module.source(call)), scene.where(module, call)
    title = (
        f"Raise `{error}` on all ranks if `{text}` ({where}) raises it on one: all of them skip the step, and the work of "
        "the others in it is lost."
    )
    return scene.fix(title, module, handed_over(call, f"{name}({error}", module), texts)


def _raising(
    nodes: list[ast.stmt], function: Function, error: str, analysis: Analysis, depth: int
) -> Iterator[tuple[ast.Call, Function]]:
    """The outermost calls that can raise it and do not communicate."""
    for call in (c for node in nodes for c in ast.walk(node) if isinstance(c, ast.Call)):
        callees = analysis.resolver.callees(call, function)
        if not callees.exact or len(callees.functions) != 1 or depth == 0:
            continue
        callee = callees.functions[0]
        if _communicates(call, callee, function, analysis):
            yield from _raising(callee.body, callee, error, analysis, depth - 1)
        elif _can_raise(callee, error, analysis, depth):
            yield call, function


def _communicates(call: ast.Call, callee: Function, function: Function, analysis: Analysis) -> bool:
    return analysis.communication.reach(call, function) is not None or callee in analysis.communication.messages


def _can_raise(function: Function, error: str, analysis: Analysis, depth: int) -> bool:
    for node in own_nodes(function.node):
        if isinstance(node, ast.Raise) and node.exc is not None and last_word(node.exc) == error:
            return True
        if isinstance(node, ast.Call) and depth:
            callees = analysis.resolver.callees(node, function)
            if callees.exact and any(_can_raise(f, error, analysis, depth - 1) for f in callees.functions):
                return True
    return False


def _takes_text(handler: ast.ExceptHandler, function: Function, analysis: Analysis) -> bool:
    """The other ranks can create it from one message."""
    assert handler.type is not None
    defined = analysis.resolver.definition(handler.type, function)
    if isinstance(defined, Class):
        return analysis.resolver.method(defined, "__init__") is None
    return last_word(handler.type) in _TAKES_TEXT
