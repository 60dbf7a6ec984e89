"""A wrapped model whose forward pass uses other parameters on some ranks: their gradients are never reduced there."""

import ast
from collections.abc import Iterator

from forkpoint.bridge.fork import Fork, ForkKind
from forkpoint.bridge.tree import Deciding, deciding, head, names_in
from forkpoint.bridge.walk import Walk
from forkpoint.bridge.weighed import Weighed
from forkpoint.bridge.words import because, tell_condition
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin, Strength, known_apis
from forkpoint.source.code import Class, Function
from forkpoint.source.value import Reason, Reasons

_IN_FORWARD = 0.6
"""Every model has branches; that one of them left out a parameter is only what remains."""


def find_unused(cohort: int | None, walk: Walk) -> Iterator[Weighed]:
    """Branches in it that hang on what it is given, which is each rank's own batch."""
    for forward in wrapped_forwards(walk.analysis):
        given = _given(forward)
        for node in deciding(forward):
            hangs_on = names_in(head(node)) & given
            if hangs_on:
                text = "it comes from the input of the wrapped model, this rank's own batch"
                path = forward.module.path
                why = Reason(Origin.LOCAL_DATA, Strength.LIKELY, path, node.lineno, min(hangs_on), text)
                yield Weighed(_fork(node, forward, frozenset({why}), cohort), _IN_FORWARD)


def _given(forward: Function) -> set[str]:
    """Its parameters, and what is computed from them."""
    given = set(forward.params) - {"self"}
    for node in forward.own.assignments:
        if isinstance(node, ast.Assign) and names_in(node.value) & given:
            given |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return given


def _fork(node: Deciding, forward: Function, reasons: Reasons, cohort: int | None) -> Fork:
    told = "a rank can leave out parameters, whose gradients the others then wait to reduce"
    sentence = f"by {tell_condition(head(node), forward)} {told}{because(reasons)}"
    return Fork(ForkKind.SKIPPED, forward, node, head(node), reasons, None, cohort, 0.0, sentence)


def wrapped_forwards(analysis: Analysis) -> Iterator[Function]:
    """Of the classes whose objects are handed to DDP or FSDP."""
    wrappers = known_apis().wrappers
    found: dict[Function, None] = {}
    for function in analysis.program.functions():
        for call in function.calls:
            if call.args and analysis.resolver.dotted(call.func, function) in wrappers:
                for cls in _classes(call.args[0], function, analysis):
                    forward = analysis.resolver.method(cls, "forward")
                    if forward is not None:
                        found.setdefault(forward)
    yield from found


def _classes(expr: ast.expr, function: Function, analysis: Analysis) -> Iterator[Class]:
    """`Net()`, `Net().to(device)`, or a name that holds one."""
    for node in ast.walk(expr):
        cls = analysis.resolver.class_of(node, function) if isinstance(node, ast.Call | ast.Name) else None
        if isinstance(cls, Class):
            yield cls
