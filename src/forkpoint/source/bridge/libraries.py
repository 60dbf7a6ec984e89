"""Ranks that separated inside a library that is not part of the source: which decisions of the program's own code
matter there.

A framework runs the loop, and the program provides callbacks, hooks and data. Stacks then show the line that starts the
framework, and below it the callbacks that some ranks were in.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.model.world import name_ranks
from forkpoint.source.apis import Origin, Strength, is_stop_flag, runs_on_one_rank
from forkpoint.source.bridge.fork import Fork, ForkKind, Weighed
from forkpoint.source.bridge.search import ProgramFlow
from forkpoint.source.bridge.sides import Chain, CodeLine, ForkSide, Sides
from forkpoint.source.bridge.why import NOT_SHOWN, because, decision_fork, place_fork, tell_condition, tell_decision
from forkpoint.source.code import Function
from forkpoint.source.flow import exit_of
from forkpoint.source.syntax import branches_and_loops, called_name, enclosing, own_nodes, rounds, test_of
from forkpoint.source.value import Reason

_ONE_RANK = 0.9
"""A function that runs on one rank and communicates: nothing else has to go wrong."""
_CALLED_BACK = 0.35
"""Some ranks were in a callback and others were not; what decided that is in the library."""
_DEEPER = 0.9
"""Per level of calls below the library."""
_STEERS = 0.6
"""What a callback tells the library decides what it does next; that this happened here is not recorded."""
_PASSIVE = ("Dataset", "Sampler", "Function")
"""Besides `nn.Module`: classes whose methods compute values that do not affect the framework's next call."""


def find_called_back(sides: Sides, flow: ProgramFlow) -> Iterator[Weighed]:
    """Callbacks that one side was in, at a place where the other side was in the library."""
    for deep, other in ((sides.odd, sides.usual), (sides.usual, sides.odd)):
        chain, above = flow.places.chain(deep.stack), flow.places.chain(other.stack)
        if above and len(chain) > len(above) and chain[: len(above)] == above:
            yield from _in_callback(chain[len(above) :], deep, other, flow)


def _in_callback(inside: Chain, deep: ForkSide, other: ForkSide, flow: ProgramFlow) -> Iterator[Weighed]:
    here, there = name_ranks(deep.ranks, 2), name_ranks(other.ranks, 2)
    came = f"a library called this on {here} while {there} did something else in it"
    place = place_fork(ForkKind.SKIPPED, inside[0], flow.places, came, deep.cohort)
    if place is not None:
        yield Weighed(place, _CALLED_BACK)
    for depth, frame in enumerate(inside):
        weight = _DEEPER**depth
        yield from (Weighed(fork, weight * _ONE_RANK) for fork in _on_one_rank(frame.function, deep))
        for node in enclosing(frame.line, frame.function):
            told = f"{tell_decision(node, frame.line, here, frame.function)}, and {there} did not come here"
            fork, differs = decision_fork(node, frame.function, flow.analysis, told, deep.cohort)
            if differs > NOT_SHOWN:
                yield Weighed(fork, weight * differs)
        yield from _leaving(frame, there, deep.cohort, weight, flow)


def _on_one_rank(function: Function, deep: ForkSide) -> Iterator[Fork]:
    for decorator in function.decorators():
        if runs_on_one_rank(called_name(decorator)):
            who, path, text = name_ranks(deep.ranks, 2), function.module.path, "the function runs on one rank only"
            written = f"@{function.module.source(decorator)}"
            why = frozenset({Reason(Origin.RANK, Strength.CERTAIN, path, decorator.lineno, written, text)})
            told = f"{who} communicates in {function.short}(), which the other ranks do not run{because(why)}"
            yield Fork(ForkKind.SKIPPED, function, decorator, None, why, None, deep.cohort, 0.0, told)


def _leaving(frame: CodeLine, there: str, cohort: int | None, weight: float, flow: ProgramFlow) -> Iterator[Weighed]:
    """Exits above the line that the ranks at it did not take."""
    for node in branches_and_loops(frame.function):
        if isinstance(node, ast.If) and exit_of(node.body) == "return" and (node.end_lineno or 0) < frame.line:
            told = f"{there} may have left by this `return`"
            fork, differs = decision_fork(node, frame.function, flow.analysis, told, cohort)
            if differs > NOT_SHOWN:
                yield Weighed(fork, weight * differs)


def find_steering(cohort: int | None, flow: ProgramFlow) -> Iterator[Weighed]:
    """Decisions of the program's own callbacks that the library acts on, and the lengths of data that it loops over."""
    for function in flow.analysis.program.functions():
        if function.owner is None or not _is_called_back(function, flow):
            continue
        for node in branches_and_loops(function):
            what = _steers(node, function, flow) if isinstance(node, ast.If) else None
            if what is not None:
                told = f"a library runs this, and {tell_condition(test_of(node), function)} decides {what}"
                yield from _if_different(*decision_fork(node, function, flow.analysis, told, cohort))
        for loop in rounds(function) if function.short == "__iter__" else ():
            if isinstance(loop.node, ast.For) and any(isinstance(n, ast.Yield) for n in ast.walk(loop.node)):
                told = f"a library runs over what this loop over {tell_condition(loop.head, function)} yields"
                yield from _if_different(*decision_fork(loop.node, function, flow.analysis, told, cohort))


def _if_different(fork: Fork, differs: float) -> Iterator[Weighed]:
    if differs > NOT_SHOWN:
        yield Weighed(replace(fork, kind=ForkKind.STEERED), differs * _STEERS)


def _is_called_back(function: Function, flow: ProgramFlow) -> bool:
    """Its class extends a library's class. Data is iterated over whatever it extends."""
    assert function.owner is not None
    outside = [a for a in flow.analysis.resolver.ancestors(function.owner) if isinstance(a, str)]
    if function.short == "__iter__":
        return bool(outside)
    return any(name.rpartition(".")[2] != "Module" and not name.endswith(_PASSIVE) for name in outside)


def _steers(node: ast.If, function: Function, flow: ProgramFlow) -> str | None:
    """`whether it sets control.should_evaluate`, `whether it calls all_reduce`."""
    steps = flow.analysis.branches.steps([*node.body, *node.orelse], function)
    if steps:
        return f"whether it comes to {steps[0].reach.api.op}"
    for inner in (n for part in (*node.body, *node.orelse) for n in (part, *own_nodes(part))):
        for target in inner.targets if isinstance(inner, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and (_is_given(target, function) or is_stop_flag(target.attr)):
                return f"whether it sets `{function.module.source(target)}`"
    return None


def _is_given(target: ast.Attribute, function: Function) -> bool:
    """`control.should_save` of a parameter: an object of the library."""
    return isinstance(target.value, ast.Name) and target.value.id in set(function.params) - {"self"}
