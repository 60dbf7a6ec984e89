"""One call with arguments that differ, or the same calls in another order: the call, and what makes it differ."""

import ast
from collections.abc import Iterator
from itertools import pairwise

from forkpoint.bridge.around import decision_fork, place_fork
from forkpoint.bridge.fork import Fork, ForkKind
from forkpoint.bridge.places import Chain, Place, Places, function_at
from forkpoint.bridge.tree import deciding, enclosing, head, names_in
from forkpoint.bridge.walk import Walk
from forkpoint.bridge.weighed import Weighed
from forkpoint.bridge.why import NOT_SHOWN
from forkpoint.bridge.words import because
from forkpoint.source.apis import Origin
from forkpoint.source.code import Function
from forkpoint.source.value import Reason, Reasons, strongest

_CALL = 0.8
_CHOOSES = 0.9
"""A branch that sets what the call passes, and can differ, says more than the call."""
_BEGINS = 0.6
_ORDER = 1.0
_SET = 0.4
_PASSED = 0.95


def find_argument(chain: Chain, cohort: int | None, walk: Walk) -> Iterator[Weighed]:
    """The call, the branch that sets what it passes, and where that begins to differ."""
    place = chain[-1]
    for call in _calls_at(place, walk):
        reasons = _reasons(call, place, walk)
        yield Weighed(_call_fork(call, place, reasons, cohort), _CALL)
        used = names_in(call)
        for node in deciding(place.function):
            if node.lineno <= call.lineno and _sets(node, used):
                fork, differs = decision_fork(
                    node, place.function, walk.analysis, "what the call passes is set", cohort
                )
                if differs > NOT_SHOWN:
                    yield Weighed(fork, differs * _CHOOSES)
        for line in _set_at(call, place):
            fork = place_fork(
                ForkKind.ARGUMENT, Place(place.function, line), walk.places, "what the call passes is set here", cohort
            )
            if fork is not None:
                yield Weighed(fork, _SET)
        for reason in sorted(reasons, key=lambda r: r.key):
            begins = _beginning(reason, cohort, walk)
            if begins is not None:
                yield Weighed(begins, _BEGINS)


def find_order(chain: Chain, cohort: int | None, walk: Walk) -> Iterator[Weighed]:
    """A loop around the call, or around a call above it, whose order can differ; else the call."""
    for place in reversed(chain):
        for node in enclosing(place):
            if isinstance(node, ast.For | ast.AsyncFor):
                extent = walk.analysis.differences.test(node.iter, place.function).extent
                reasons = frozenset(r for r in extent if r.origin is Origin.ORDER)
                if reasons:
                    sentence = f"one call per element, in an order that is not the same on all ranks{because(reasons)}"
                    fork = Fork(ForkKind.ORDER, place.function, node, head(node), reasons, None, cohort, 0.0, sentence)
                    yield Weighed(fork, _ORDER)
    call = place_fork(ForkKind.ORDER, chain[-1], walk.places, "ranks come to this call in another order", cohort)
    if call is not None:
        yield Weighed(call, 0.4)


def find_passed(found: list[Weighed], chains: tuple[Chain, ...], places: Places) -> Iterator[Weighed]:
    """Where a decision is about a parameter and nothing else, the caller decided."""
    for weighed in found:
        fork = weighed.fork
        names = names_in(fork.test) - {"range"} if fork.test is not None else frozenset()
        above = _caller(fork.function, chains)
        if above is not None and fork.reasons and names and names <= set(fork.function.params):
            passed = ", ".join(f"`{n}`" for n in sorted(names))
            sentence = f"{passed}, by which line {fork.node.lineno} decides, is passed here{because(fork.reasons)}"
            caller = place_fork(fork.kind, above, places, sentence, fork.cohort)
            if caller is not None:
                yield Weighed(caller, weighed.weight * _PASSED)


def _caller(function: Function, chains: tuple[Chain, ...]) -> Place | None:
    pairs = (pair for chain in chains for pair in pairwise(chain))
    return next((above for above, below in pairs if below.function is function), None)


def _calls_at(place: Place, walk: Walk) -> list[ast.Call]:
    spot = next(iter(walk.places.spots(place)), None)
    called = [c.node for c in walk.called(spot) if c.op is not None and c.node is not None] if spot else []
    return called[:1]


def _reasons(call: ast.Call, place: Place, walk: Walk) -> Reasons:
    passed = [*call.args, *(k.value for k in call.keywords)]
    values = [walk.analysis.differences.argument(a, place.function) for a in passed]
    # The values may differ, that is what one communicates for; sizes must not.
    return strongest(frozenset().union(*(v.extent for v in values)))


def _call_fork(call: ast.Call, place: Place, reasons: Reasons, cohort: int | None) -> Fork:
    test = call.args[0] if call.args else None
    sentence = f"the ranks call this with arguments that do not fit together{because(reasons)}"
    return Fork(ForkKind.ARGUMENT, place.function, call, test, reasons, None, cohort, 0.0, sentence)


def _sets(node: ast.AST, used: frozenset[str]) -> bool:
    """It assigns one of these names in its body, or chooses between two values of them."""
    if isinstance(node, ast.IfExp):
        return bool(names_in(node) & used)
    stores = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return isinstance(node, ast.If) and bool(set(stores) & used)


def _set_at(call: ast.Call, place: Place) -> list[int]:
    """Where what the call passes was set last, the nearest first."""
    passed = {
        n.id for a in (*call.args, *(k.value for k in call.keywords)) for n in ast.walk(a) if isinstance(n, ast.Name)
    }
    lines: list[int] = []
    for node in place.function.own.assignments:
        stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if isinstance(node, ast.stmt) and node.lineno < call.lineno and stored & passed:
            lines.append(node.lineno)
    return lines[-2:][::-1]


def _beginning(reason: Reason, cohort: int | None, walk: Walk) -> Fork | None:
    module = walk.analysis.program.modules.get(reason.file)
    function = function_at(module, reason.line) if module else None
    if function is None:
        return None
    sentence = f"what the call passes begins to differ here: {reason.text}"
    return place_fork(ForkKind.ARGUMENT, Place(function, reason.line), walk.places, sentence, cohort)
