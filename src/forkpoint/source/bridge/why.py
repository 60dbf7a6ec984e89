"""Why a decision can differ by rank, how likely that is, and the phrases and the fork that say so."""

import ast
from collections.abc import Iterator

from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin, Strength, is_rank_word
from forkpoint.source.branches import tell_reason
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.bridge.sides import CodeLine, StackMap
from forkpoint.source.code import Function
from forkpoint.source.resolve import callees_below
from forkpoint.source.syntax import (
    BranchOrLoop,
    all_arguments,
    argument_for,
    branches_and_loops,
    is_raised_on_all_ranks,
    last_word,
    names_and_attributes_in,
    rounds,
    shortened,
    spans,
    test_of,
)
from forkpoint.source.value import NO_REASONS, Reason, Reasons, strength_of, strongest

# ---------------------------------------------------------------------------------------------------------------------
# Why a decision can differ by rank, and how likely that is.

_STRENGTH = {Strength.CERTAIN: 1.0, Strength.LIKELY: 0.9, Strength.POSSIBLE: 0.65}
NOT_SHOWN = 0.3
"""The source shows neither that it can differ nor that it cannot."""
_EQUAL = 0.05
"""The source shows that it is the same on all ranks."""
_COUNTER = 0.12
"""It counts rounds, so it differs only after something else differed."""
_ROUNDS_NOT_SHOWN = 0.12
"""A loop over layers, buckets or callbacks has the same length on all ranks; if a loop over something else has not, the
source usually shows why.
"""
_RAISED_WITHIN = 3
"""Levels of calls below the `try`."""
_MADE_WITHIN = 3
"""Levels of callers above the loop that pass on what it iterates over."""
_ON_ALL_RANKS = 0.2
"""An exception that is usually raised on all ranks."""


def how_different(node: ast.AST, test: ast.expr, function: Function, analysis: Analysis) -> tuple[Reasons, float]:
    value = analysis.differences.test(test, function)
    reasons = value.reasons
    if isinstance(node, ast.For | ast.AsyncFor):
        if _is_constant(test):
            return NO_REASONS, _EQUAL
        reasons = frozenset(r for r in value.extent if r.origin is not Origin.ORDER)
        reasons = reasons or _of_generator(test, function, analysis) or _of_maker(test, function, analysis)
    strength = strength_of(reasons)
    if strength is not None:
        return reasons, _STRENGTH[strength]
    if value.equal or _is_constant(test):
        return NO_REASONS, _EQUAL
    if isinstance(node, ast.For | ast.AsyncFor):
        return NO_REASONS, _ROUNDS_NOT_SHOWN
    return NO_REASONS, _COUNTER if _counts_rounds(test, function) else NOT_SHOWN


def _of_generator(iterated: ast.expr, function: Function, analysis: Analysis) -> Reasons:
    """A loop over a generator has as many rounds as the loops around its `yield`."""
    found: set[Reason] = set()
    for callee in analysis.resolver.callees(iterated, function).functions if isinstance(iterated, ast.Call) else ():
        for loop in rounds(callee):
            if any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(loop.node)):
                found |= analysis.differences.test(loop.head, callee).reasons
    return strongest(frozenset(found))


def _of_maker(iterated: ast.expr, function: Function, analysis: Analysis, depth: int = _MADE_WITHIN) -> Reasons:
    """`files = TokenFiles(rank, world)`: the object was made for this rank, so its length may be this rank's own."""
    for value, where in _makers(_held_by(iterated), function, analysis):
        if isinstance(value, ast.Call) and any(map(is_rank_word, _given_to(value))):
            text = "it is made with this rank's number, and may be longer or shorter than on other ranks"
            what = shortened(where.module.source(value), 40)
            return frozenset({Reason(Origin.RANK, Strength.POSSIBLE, where.module.path, value.lineno, what, text)})
        if where is not function and depth and (found := _of_maker(value, where, analysis, depth - 1)):
            return found
    return NO_REASONS


def _held_by(iterated: ast.expr) -> ast.expr:
    """`files` of `enumerate(files)` and of `files.epoch(3)`."""
    while isinstance(iterated, ast.Call):
        inner = iterated.func.value if isinstance(iterated.func, ast.Attribute) else next(iter(iterated.args), None)
        if inner is None:
            break
        iterated = inner
    return iterated


def _makers(node: ast.AST, function: Function, analysis: Analysis) -> Iterator[tuple[ast.expr, Function]]:
    """What was assigned to a name or attribute, and what callers pass for a parameter."""
    match node:
        case ast.Name(id=name) if name in function.params:
            for call, caller in analysis.resolver.call_sites(function):
                passed = argument_for(name, call, function)
                if passed is not None:
                    yield passed, caller
        case ast.Name(id=name):
            yield from ((value, function) for value in analysis.resolver.assigned(function).get(name, ()))
        case ast.Attribute(value=ast.Name(id="self"), attr=attr) if function.owner is not None:
            yield from analysis.resolver.attributes(function.owner).get(attr, ())
        case _:
            pass


def _given_to(call: ast.Call) -> set[str]:
    return {name for argument in all_arguments(call) for name in names_and_attributes_in(argument)}


def _counts_rounds(test: ast.expr, function: Function) -> bool:
    """`step % 10 == 9`: the same on all ranks while they are in the same round."""
    names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name) and not n.id.isupper()}
    plain = not any(isinstance(n, ast.Call | ast.Attribute) for n in ast.walk(test))
    return plain and bool(names) and names <= _counters(function)


def _counters(function: Function) -> set[str]:
    """Targets of loops over `range`, and the first of those over `enumerate`."""
    found: set[str] = set()
    for node in ast.walk(function.node):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            target, name = node.target, last_word(node.iter.func)
            if name == "enumerate" and isinstance(target, ast.Tuple):
                target = target.elts[0]
            if name in {"range", "enumerate"} and isinstance(target, ast.Name):
                found.add(target.id)
    return found


def can_change(test: ast.expr, function: Function, analysis: Analysis) -> bool:
    """Whether one rank can decide differently in another round. Its rank number does not change."""
    for node in ast.walk(test):
        match node:
            case ast.Call() if not is_rank_word(last_word(node.func)):
                return True
            case ast.Attribute(value=ast.Name(id="self")) if not is_rank_word(node.attr):
                owner = function.owner
                writers = [m for _, m in analysis.resolver.attributes(owner).get(node.attr, ())] if owner else []
                if not writers or any(m.short != "__init__" for m in writers):
                    return True
            case ast.Name(id=name) if name not in {"self", "range"} and not name.isupper() and not is_rank_word(name):
                return True
            case _:
                pass
    return False


def how_caught(handler: ast.ExceptHandler, function: Function, analysis: Analysis) -> tuple[Reasons, float]:
    """An explicit `raise` under a condition that differs is a better reason than the mere possibility of an exception."""
    name = ast.unparse(handler.type) if handler.type is not None else "an exception"
    explicit = _raised_by_rank(handler, function, analysis)
    if explicit:
        return explicit, _STRENGTH[Strength.CERTAIN]
    path = function.module.path
    text = f"{name} may be raised on one rank only"
    reason = Reason(Origin.EXCEPTION, Strength.LIKELY, path, handler.lineno, f"except {name}", text)
    return frozenset({reason}), _ON_ALL_RANKS if is_raised_on_all_ranks(handler) else _STRENGTH[Strength.LIKELY]


def _raised_by_rank(handler: ast.ExceptHandler, function: Function, analysis: Analysis) -> Reasons:
    """Why only some ranks reach a `raise` of the caught class in the code that the `try` runs."""
    body = next((n.body for n in ast.walk(function.node) if isinstance(n, ast.Try) and handler in n.handlers), [])
    first, last = (body[0].lineno, body[-1].end_lineno or 0) if body else (0, 0)
    caught = names_and_attributes_in(handler.type) if handler.type is not None else set()
    found: set[Reason] = set()
    for callee, _ in callees_below(range(first, last + 1), function, analysis.resolver, _RAISED_WITHIN):
        for node in branches_and_loops(callee):
            raised = {last_word(n.exc) for n in ast.walk(node) if isinstance(n, ast.Raise) and n.exc is not None}
            if isinstance(node, ast.If) and raised & caught:
                found |= analysis.differences.test(node.test, callee).reasons
    return strongest(frozenset(found))


def _is_constant(test: ast.expr) -> bool:
    """`range(2)`, `True`; the length of a tuple that is written out."""
    if isinstance(test, ast.Tuple | ast.List) and not any(isinstance(e, ast.Starred) for e in test.elts):
        return True
    return not any(isinstance(n, ast.Name) and n.id != "range" for n in ast.walk(test))


# ---------------------------------------------------------------------------------------------------------------------
# Phrases that the sentences of all forks share.


def tell_condition(test: ast.expr | None, function: Function) -> str:
    return f"`{shortened(function.module.source(test))}`" if test is not None else "any exception"


def because(reasons: Reasons) -> str:
    """The strongest reason, as the end of a sentence."""
    best = min(reasons, key=lambda r: r.key, default=None)
    return f"; {tell_reason(best)}" if best else ""


def tell_decision(node: BranchOrLoop, line: int, who: str, function: Function) -> str:
    """What these ranks decided in order to reach a line inside a branch or loop."""
    condition = tell_condition(test_of(node), function)
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return f"the loop over {condition} led {who} here"
    in_else = isinstance(node, ast.If) and spans(node.orelse, line)
    return f"{condition} was {'false' if in_else else 'true'} on {who}"


# ---------------------------------------------------------------------------------------------------------------------
# Forks at a line, or at a decision around it.


def place_fork(
    kind: ForkKind, place: CodeLine, places: StackMap, sentence: str, cohort: int | None, reasons: Reasons = frozenset()
) -> Fork | None:
    """At the statement on a line; None if the line has none."""
    point = next(iter(places.points(place)), None)
    if point is None or point.node is None:
        return None
    return Fork(kind, place.function, point.node, None, reasons, None, cohort, 0.0, f"{sentence}{because(reasons)}")


def decision_fork(
    node: BranchOrLoop, function: Function, analysis: Analysis, sentence: str, cohort: int | None
) -> tuple[Fork, float]:
    """A fork at a branch or loop, with the likelihood that it differs by rank."""
    test = test_of(node)
    reasons, differs = how_different(node, test, function, analysis)
    kind = ForkKind.LOOP if isinstance(node, ast.For | ast.AsyncFor | ast.While) else ForkKind.SKIPPED
    told = f"{sentence}{because(reasons)}"
    return Fork(kind, function, node, test, reasons, None, cohort, 0.0, told), differs
