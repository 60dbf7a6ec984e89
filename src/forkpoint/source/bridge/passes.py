"""Passes of a wrapped model that communicate on some ranks only: parameters without a gradient, and `no_sync`."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.model.log import LogEvent
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin, Strength, known_apis
from forkpoint.source.bridge.fork import Fork, ForkKind, Weighed
from forkpoint.source.bridge.search import ProgramFlow
from forkpoint.source.bridge.separate import is_from_backward
from forkpoint.source.bridge.sides import ForkSide, Sides
from forkpoint.source.bridge.why import NOT_SHOWN, because, decision_fork, tell_condition
from forkpoint.source.code import Class, Function
from forkpoint.source.syntax import (
    BranchOrLoop,
    branches_and_loops,
    last_word,
    names_and_attributes_in,
    names_in,
    test_of,
)
from forkpoint.source.value import Reason, Reasons

_IN_FORWARD = 0.6
"""Every model has branches, so a branch that skipped a parameter is only the explanation if nothing else fits."""
_NO_LAYER = 0.5
"""Factor for it if no arm of the branch calls a part of the model."""
_UNFINISHED = "Expected to have finished reduction in the prior iteration"
"""DDP reports this in the forward pass after one that left parameters without a gradient."""


def in_same_pass(sides: Sides, flow: ProgramFlow) -> bool:
    """Both sides are in a backward pass, or the odd one raised where it called the wrapped model."""
    both = all(is_from_backward(s.stack, flow.places.chain(s.stack)) for s in (sides.usual, sides.odd))
    raised = flow.places.chain(sides.odd.raised.stack) if sides.odd.raised else ()
    return both or (bool(raised) and flow.calls_wrapped(raised[-1]))


def in_a_pass(side: ForkSide, flow: ProgramFlow) -> bool:
    """Its call belongs to a forward or backward pass of a wrapped model."""
    chain = flow.places.chain(side.stack)
    state = flow.state_of(chain)
    called = flow.op_at(state) if state is not None else None
    return is_from_backward(side.stack, chain) or (called is not None and called.op in {"forward", "backward"})


def left_gradients_out(raised: LogEvent | None) -> bool:
    return raised is not None and _UNFINISHED in raised.text


def find_unused(cohort: int | None, flow: ProgramFlow) -> Iterator[Weighed]:
    """Branches of a forward pass that depend on its input, which is each rank's own batch."""
    for forward in wrapped_forwards(flow.analysis):
        given = _given(forward)
        for node in branches_and_loops(forward):
            inputs = names_and_attributes_in(test_of(node)) & given
            if inputs:
                text = "it comes from the input of the wrapped model, this rank's own batch"
                path = forward.module.path
                why = Reason(Origin.LOCAL_DATA, Strength.LIKELY, path, node.lineno, min(inputs), text)
                weight = _IN_FORWARD if _calls_layer(node) else _IN_FORWARD * _NO_LAYER
                yield Weighed(_fork(node, forward, frozenset({why}), cohort), weight)


def find_unsynced(cohort: int | None, flow: ProgramFlow) -> Iterator[Weighed]:
    """Branches that decide whether a backward pass reduces gradients."""
    for function in flow.analysis.program.functions():
        for node in branches_and_loops(function):
            if isinstance(node, ast.If | ast.IfExp) and any(map(_turns_sync_off, _arms(node))):
                told = f"{tell_condition(test_of(node), function)} decides whether the backward pass reduces gradients"
                fork, differs = decision_fork(node, function, flow.analysis, told, cohort)
                if differs > NOT_SHOWN:
                    yield Weighed(replace(fork, kind=ForkKind.UNSYNCED), differs)


def _turns_sync_off(arm: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) and last_word(n.func) == "no_sync" for n in ast.walk(arm))


def _calls_layer(node: BranchOrLoop) -> bool:
    """An arm calls an attribute of the model: a layer, or a method that runs some."""
    calls = (n for part in _arms(node) for n in ast.walk(part) if isinstance(n, ast.Call))
    return any("self" in names_in(call.func) for call in calls)


def _arms(node: BranchOrLoop) -> Iterator[ast.AST]:
    """What runs under the condition."""
    for part in ("body", "orelse", "cases"):
        inner = getattr(node, part, ())
        yield from inner if isinstance(inner, list) else (inner,) if inner else ()


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
    return Fork(ForkKind.UNUSED, forward, node, test_of(node), reasons, None, cohort, 0.0, sentence)


def wrapped_forwards(analysis: Analysis) -> Iterator[Function]:
    """The forward methods of classes whose objects are passed to DDP or FSDP; of all models if a library wraps them."""
    wrappers = known_apis().wrappers
    found: dict[Function, None] = {}
    for function in analysis.program.functions():
        for call in function.calls:
            if call.args and analysis.resolver.dotted(call.func, function) in wrappers:
                for cls in _classes(call.args[0], function, analysis):
                    forward = analysis.resolver.method(cls, "forward")
                    if forward is not None:
                        found.setdefault(forward)
    yield from found or (f for f in analysis.program.functions() if f.owner is not None and f.short == "forward")


def _classes(expr: ast.expr, function: Function, analysis: Analysis) -> Iterator[Class]:
    """`Net()`, `Net().to(device)`, or a name that holds one."""
    for node in ast.walk(expr):
        cls = analysis.resolver.class_of(node, function) if isinstance(node, ast.Call | ast.Name) else None
        if isinstance(cls, Class):
            yield cls
