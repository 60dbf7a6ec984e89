"""A wrapped model that does not use the same parameters on all ranks: some gradients are never reduced."""

import ast
from collections.abc import Iterator

from forkpoint.bridge.fork import Fork, ForkKind
from forkpoint.bridge.walk import ProgramFlow
from forkpoint.bridge.weighed import Weighed
from forkpoint.bridge.words import because, tell_condition
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin, Strength, known_apis
from forkpoint.source.code import Class, Function
from forkpoint.source.syntax import BranchOrLoop, branches_and_loops, names_and_attributes_in, names_in, test_of
from forkpoint.source.value import Reason, Reasons

_IN_FORWARD = 0.6
"""Every model has branches; that one of them skipped a parameter is what remains when nothing else fits."""


def find_unused(cohort: int | None, flow: ProgramFlow) -> Iterator[Weighed]:
    """Branches of its forward pass that depend on the input, which is each rank's own batch."""
    for forward in wrapped_forwards(flow.analysis):
        given = _given(forward)
        for node in branches_and_loops(forward):
            inputs = names_and_attributes_in(test_of(node)) & given
            if inputs:
                text = "it comes from the input of the wrapped model, this rank's own batch"
                path = forward.module.path
                why = Reason(Origin.LOCAL_DATA, Strength.LIKELY, path, node.lineno, min(inputs), text)
                yield Weighed(_fork(node, forward, frozenset({why}), cohort), _IN_FORWARD)


def _given(forward: Function) -> set[str]:
    """Its parameters, and what is computed from them."""
    given = set(forward.params) - {"self"}
    for node in forward.own.assignments:
        if isinstance(node, ast.Assign) and names_and_attributes_in(node.value) & given:
            given |= {name for t in node.targets for name in names_in(t)}
    return given


def _fork(node: BranchOrLoop, forward: Function, reasons: Reasons, cohort: int | None) -> Fork:
    told = "a rank may skip parameters whose gradients the others wait to reduce"
    sentence = f"depending on {tell_condition(test_of(node), forward)}, {told}{because(reasons)}"
    return Fork(ForkKind.SKIPPED, forward, node, test_of(node), reasons, None, cohort, 0.0, sentence)


def wrapped_forwards(analysis: Analysis) -> Iterator[Function]:
    """Of the classes whose objects are passed to DDP or FSDP."""
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
