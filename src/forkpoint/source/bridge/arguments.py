"""The same calls with different arguments, in a different order, or with unused parameters: where that comes from."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from forkpoint.source.apis import Origin
from forkpoint.source.bridge.fork import Fork, ForkKind, Weighed
from forkpoint.source.bridge.headlines import tell_order
from forkpoint.source.bridge.search import ProgramFlow
from forkpoint.source.bridge.sides import Chain, CodeLine, StackMap
from forkpoint.source.bridge.why import NOT_SHOWN, because, decision_fork, place_fork, tell_condition
from forkpoint.source.code import Function
from forkpoint.source.syntax import (
    all_arguments,
    branches_and_loops,
    enclosing,
    names_and_attributes_in,
    names_in,
    names_set_in,
    test_of,
)
from forkpoint.source.value import Reason, Reasons, strongest

# ---------------------------------------------------------------------------------------------------------------------
# One call with arguments that differ by rank, or the same calls in a different order: where that comes from.

_CALL = 0.8
_CHOOSES = 0.9
"""A branch that sets an argument and can differ explains more than the call itself."""
_BEGINS = 0.6
_ORDER = 1.0
_SET = 0.4
_PASSED = 0.95


def find_argument(chain: Chain, cohort: int | None, flow: ProgramFlow) -> Iterator[Weighed]:
    """The call, the branch that sets its arguments, and where those start to differ."""
    place = chain[-1]
    for call in _calls_at(place, flow):
        reasons = _reasons(call, place, flow)
        yield Weighed(_call_fork(call, place, reasons, cohort), _CALL)
        used = names_and_attributes_in(call)
        for node in branches_and_loops(place.function):
            if node.lineno <= call.lineno and _sets(node, used):
                condition = tell_condition(test_of(node), place.function)
                fork, differs = decision_fork(
                    node, place.function, flow.analysis, f"{condition} decides what the call is given", cohort
                )
                if differs > NOT_SHOWN:
                    yield Weighed(fork, differs * _CHOOSES)
        for line in _set_at(call, place):
            fork = place_fork(
                ForkKind.ARGUMENT,
                CodeLine(place.function, line),
                flow.places,
                "an argument of the call is set here",
                cohort,
            )
            if fork is not None:
                yield Weighed(fork, _SET)
        for reason in sorted(reasons, key=lambda r: r.key):
            begins = _beginning(reason, cohort, flow)
            if begins is not None:
                yield Weighed(begins, _BEGINS)


def find_order(chain: Chain, cohort: int | None, flow: ProgramFlow, *, at_call: bool) -> Iterator[Weighed]:
    """A loop around the call, or around a caller, whose order can differ; with `at_call` also the call itself."""
    for place in reversed(chain):
        for node in enclosing(place.line, place.function):
            if isinstance(node, ast.For | ast.AsyncFor):
                extent = flow.analysis.differences.test(node.iter, place.function).extent
                reasons = frozenset(r for r in extent if r.origin is Origin.ORDER)
                if reasons:
                    sentence = f"one call per element, in an order that differs by rank{because(reasons)}"
                    fork = Fork(
                        ForkKind.ORDER, place.function, node, test_of(node), reasons, None, cohort, 0.0, sentence
                    )
                    yield Weighed(replace(fork, headlines=tell_order(fork)), _ORDER)
    call = place_fork(ForkKind.ORDER, chain[-1], flow.places, "ranks reach this call in a different order", cohort)
    if call is not None and at_call:
        yield Weighed(call, 0.4)


def find_passed(found: list[Weighed], chains: tuple[Chain, ...], places: StackMap) -> Iterator[Weighed]:
    """If a condition consists of parameters only, the caller decided."""
    for weighed in found:
        fork = weighed.fork
        names = names_and_attributes_in(fork.test) - {"range"} if fork.test is not None else set()
        above = _caller(fork.function, chains)
        if above is not None and fork.reasons and names and names <= set(fork.function.params):
            passed = ", ".join(f"`{n}`" for n in sorted(names))
            sentence = f"{passed}, which decides at line {fork.node.lineno}, is passed here{because(fork.reasons)}"
            caller = place_fork(fork.kind, above, places, sentence, fork.cohort)
            if caller is not None:
                yield Weighed(caller, weighed.weight * _PASSED)


def _caller(function: Function, chains: tuple[Chain, ...]) -> CodeLine | None:
    pairs = (pair for chain in chains for pair in pairwise(chain))
    return next((above for above, below in pairs if below.function is function), None)


def _calls_at(place: CodeLine, flow: ProgramFlow) -> list[ast.Call]:
    point = next(iter(flow.places.points(place)), None)
    called = [c.node for c in flow.called(point) if c.op is not None and c.node is not None] if point else []
    return called[:1]


def _reasons(call: ast.Call, place: CodeLine, flow: ProgramFlow) -> Reasons:
    values = [flow.analysis.differences.argument(a, place.function) for a in all_arguments(call)]
    # Values may differ, sizes must not.
    return strongest(frozenset().union(*(v.extent for v in values)))


def _call_fork(call: ast.Call, place: CodeLine, reasons: Reasons, cohort: int | None) -> Fork:
    test = call.args[0] if call.args else None
    sentence = f"ranks make this call with arguments that do not match{because(reasons)}"
    return Fork(ForkKind.ARGUMENT, place.function, call, test, reasons, None, cohort, 0.0, sentence)


def _sets(node: ast.AST, used: set[str]) -> bool:
    """It assigns one of these names, or is a conditional expression that contains one."""
    if isinstance(node, ast.IfExp):
        return bool(names_and_attributes_in(node) & used)
    return isinstance(node, ast.If) and bool(names_set_in([node]) & used)


def _set_at(call: ast.Call, place: CodeLine) -> list[int]:
    """Where the arguments of the call were set last, nearest first."""
    passed = set().union(*(names_in(a) for a in all_arguments(call)))
    lines = [
        node.lineno
        for node in place.function.own.assignments
        if isinstance(node, ast.stmt) and node.lineno < call.lineno and names_set_in([node]) & passed
    ]
    return lines[-2:][::-1]


def _beginning(reason: Reason, cohort: int | None, flow: ProgramFlow) -> Fork | None:
    module = flow.analysis.program.modules.get(reason.file)
    function = module.function_at(reason.line) if module else None
    if function is None:
        return None
    sentence = f"an argument of the call starts to differ here: {reason.text}"
    return place_fork(ForkKind.ARGUMENT, CodeLine(function, reason.line), flow.places, sentence, cohort)
