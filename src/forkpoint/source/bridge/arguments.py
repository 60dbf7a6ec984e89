"""The same calls with different arguments, in a different order, or with unused parameters: where that comes from."""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from forkpoint.model.frames import in_side_thread, in_two_threads
from forkpoint.model.incident import Incident
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin
from forkpoint.source.bridge.fork import Fork, ForkKind, Weighed
from forkpoint.source.bridge.headlines import tell_order
from forkpoint.source.bridge.search import ProgramFlow
from forkpoint.source.bridge.sides import Chain, CodeLine, StackMap
from forkpoint.source.bridge.why import NOT_SHOWN, because, decision_fork, place_fork, tell_condition
from forkpoint.source.code import Function
from forkpoint.source.flow import exit_of
from forkpoint.source.syntax import (
    BranchOrLoop,
    all_arguments,
    ancestors,
    branches_and_loops,
    called_name,
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
_CALL_ABOVE = 0.78
"""The call of a function that only passes its arguments on."""
_HANDED_ON = 0.75
"""The call in such a function, if it is also told how much to send to whom, which its caller computes."""
_CHOOSES = 0.9
"""A branch that sets an argument and can differ explains more than the call itself."""
_CHOOSES_RESULT = 0.83
"""The same for a result that the call is given, if nothing shows that it can differ."""
_BEGINS = 0.6
_ORDER = 1.0
_ELEMENTS = 0.45
_THREAD = 0.6
_SET = 0.4
_PASSED = 0.95


def find_argument(chain: Chain, cohort: int | None, flow: ProgramFlow) -> Iterator[Weighed]:
    """The call, the branch that sets its arguments, and where those start to differ.

    A function that only passes its arguments on (`all_to_all(x)` of a project) explains nothing; its caller does.
    """
    place, call = chain[-1], next(iter(_calls_at(chain[-1], flow)), None)
    if call is None:
        return
    reasons = _reasons(call, place, flow)
    above = chain[-2] if len(chain) > 1 and _hands_on(call, place.function) else None
    passed = _calls_of(above, place.function, flow)[:1] if above is not None else []
    made = above is not None and _has_splits(call) and any(_is_made(c, above.function, flow.analysis) for c in passed)
    yield Weighed(_call_fork(call, place, reasons, cohort), _HANDED_ON if made and not reasons else _CALL)
    yield from _about(call, place, reasons, cohort, flow)
    if above is not None:
        for passing in passed:
            reasons = _reasons(passing, above, flow)
            told = f"what does not match between ranks is passed on from here{because(reasons)}"
            yield Weighed(replace(_call_fork(passing, above, reasons, cohort), sentence=told), _CALL_ABOVE)
            yield from _about(passing, above, reasons, cohort, flow)


def _has_splits(call: ast.Call) -> bool:
    """`all_to_all_single(out, x, out_splits, in_splits)`."""
    splits = len(call.args) > len(("out", "x")) or any(k.arg and "split" in k.arg for k in call.keywords)
    return splits and called_name(call.func).startswith("all_to_all")


def _is_made(call: ast.Call, function: Function, analysis: Analysis) -> bool:
    """What the call is given is the result of another function of the program."""
    names = set().union(*(names_in(a) for a in all_arguments(call)))
    values = [v for name in names for v in analysis.resolver.assigned(function).get(name, ())]
    made = (n for value in values for n in ast.walk(value) if isinstance(n, ast.Call))
    return any(analysis.resolver.callees(n, function).functions for n in made)


def _about(
    call: ast.Call, place: CodeLine, reasons: Reasons, cohort: int | None, flow: ProgramFlow
) -> Iterator[Weighed]:
    """What decides the arguments of a call, and where they are set or start to differ."""
    used = names_and_attributes_in(call)
    here = [
        (n, place.function) for n in branches_and_loops(place.function) if n.lineno <= call.lineno and _sets(n, used)
    ]
    for node, function in (*here, *_choosing(call, place.function, flow.analysis)):
        told = f"{tell_condition(test_of(node), function)} decides what the call is given"
        fork, differs = decision_fork(node, function, flow.analysis, told, cohort)
        if differs > NOT_SHOWN:
            yield Weighed(fork, differs * _CHOOSES)
        elif differs == NOT_SHOWN and function is not place.function:
            # The results are known to differ, and this is what chooses them.
            yield Weighed(fork, _CHOOSES_RESULT)
    for line in _set_at(call, place):
        at = CodeLine(place.function, line)
        fork = place_fork(ForkKind.ARGUMENT, at, flow.places, "an argument of the call is set here", cohort)
        if fork is not None:
            yield Weighed(fork, _SET)
    for reason in sorted(reasons, key=lambda r: r.key):
        begins = _beginning(reason, cohort, flow)
        if begins is not None:
            yield Weighed(begins, _BEGINS)


def _choosing(call: ast.Call, function: Function, analysis: Analysis) -> Iterator[tuple[BranchOrLoop, Function]]:
    """Branches that choose the result of a function whose result the call is given."""
    passed = set().union(*(names_in(a) for a in all_arguments(call)))
    values = [v for name in passed for v in analysis.resolver.assigned(function).get(name, ())]
    for inner in (n for value in (*all_arguments(call), *values) for n in ast.walk(value) if isinstance(n, ast.Call)):
        callees = analysis.resolver.callees(inner, function)
        for callee in callees.functions if callees.exact else ():
            for node in branches_and_loops(callee):
                if isinstance(node, ast.IfExp | ast.If) and any(
                    _returns(n) for n in (node, *_parents_of(node, callee))
                ):
                    yield node, callee


def _returns(node: ast.AST) -> bool:
    return isinstance(node, ast.Return) or (isinstance(node, ast.If) and exit_of(node.body) == "return")


def _parents_of(node: ast.AST, function: Function) -> Iterator[ast.AST]:
    return (outer for outer, _ in ancestors(node, function) if isinstance(outer, ast.stmt))


def _hands_on(call: ast.Call, function: Function) -> bool:
    """All arguments of the call are made from the function's parameters."""
    made = set(function.params) - {"self", "cls"}
    known = {*function.module.imports, *function.module.functions, *dir(builtins), "ctx"}
    known |= {
        name
        for node in ast.walk(function.node)
        if isinstance(node, ast.comprehension)
        for name in names_in(node.target)
    }
    for node in function.own.assignments:
        if isinstance(node, ast.Assign) and names_in(node.value) - known <= made:
            made |= {name for target in node.targets for name in names_in(target)}
    given = set().union(*(names_in(a) for a in all_arguments(call))) - known
    return bool(given) and given <= made


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


def find_dispatched(usual: Chain, odd: Chain, cohort: int | None, flow: ProgramFlow) -> Iterator[Weighed]:
    """Both sides are in one call of a loop that runs another function for each element: they are at different elements."""
    shared = next((i for i, (a, b) in enumerate(zip(usual, odd, strict=False)) if a != b), 0)
    place = usual[shared - 1] if shared else None
    loop = next((n for n in enclosing(place.line, place.function) if isinstance(n, ast.For)), None) if place else None
    if place is None or loop is None or usual[shared].function is odd[shared].function:
        return
    both = {usual[shared].function, odd[shared].function}
    extent = flow.analysis.differences.test(loop.iter, place.function).extent
    reasons = frozenset(r for r in extent if r.origin is Origin.ORDER)
    if not any(both <= {*called.callees} for point in flow.places.points(place)[:1] for called in flow.called(point)):
        return
    told = f"ranks are at different elements of {tell_condition(loop.iter, place.function)}"
    told += because(reasons) or ": its order or its elements differ"
    fork = Fork(ForkKind.ORDER, place.function, loop, loop.iter, reasons, None, cohort, 0.0, told)
    yield Weighed(fork, _ORDER if reasons else _ELEMENTS)


def find_threads(incident: Incident, flow: ProgramFlow) -> Iterator[Weighed]:
    """Calls that a thread of the program makes beside those of the main thread."""
    stacks = [stack for stack in incident.timeline.tables.stacks.values() if stack]
    for stack in stacks if in_two_threads(stacks) else ():
        chain = flow.places.chain(stack) if in_side_thread(stack) else ()
        told = "a thread makes this call, and nothing puts it in one order with those of the main thread"
        fork = place_fork(ForkKind.ORDER, chain[-1], flow.places, told, None) if chain else None
        if fork is not None:
            yield Weighed(fork, _THREAD)


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


def _calls_of(place: CodeLine, callee: Function, flow: ProgramFlow) -> list[ast.Call]:
    """The calls on this line that run the function; all, if none is known to."""
    point = next(iter(flow.places.points(place)), None)
    known = [c.node for c in flow.called(point) if c.node is not None and callee in c.callees] if point else []
    return known or [n for p in (point.parts if point else ()) for n in ast.walk(p) if isinstance(n, ast.Call)]


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
