"""How well a separating decision explains the divergence, and the sentence that describes it."""

import ast

from forkpoint.bridge.fork import Fork, ForkKind
from forkpoint.bridge.part import Separation
from forkpoint.bridge.sides import Sides
from forkpoint.bridge.weighed import Weighed
from forkpoint.bridge.why import can_change, how_caught, how_different
from forkpoint.bridge.words import because, tell_condition
from forkpoint.model.ranks import name_ranks
from forkpoint.source.analysis import Analysis
from forkpoint.source.branches import CommStep
from forkpoint.source.code import Function
from forkpoint.source.flow import Turn, exit_of
from forkpoint.source.tell import name_step
from forkpoint.source.value import Reasons

_SLIP = 0.6
"""It can only have happened in an earlier round, where it left no trace."""
_UNSEEN = 0.8
"""The same, for a rank whose calls are not recorded."""
_FIXED = 0.1
"""It went the other way in the rounds before, and nothing in the condition can change."""
LEAST = 0.1
"""Forks below this are not shown: a wrong place costs more than none."""
_PER_COST = 0.9
"""Per unit of cost that a path through the decision has above the cheapest path."""


def weigh(separation: Separation, sides: Sides, analysis: Analysis) -> Weighed:
    turn, function = separation.turn, separation.function
    reasons, differs = _why(turn, function, analysis)
    weight = differs * (0.4 + 0.6 * separation.separates) * _PER_COST**separation.slack
    if separation.slip:
        weight *= _SLIP if sides.odd.recorded else _UNSEEN
    if separation.slip or sides.same_rank:
        weight *= 1.0 if turn.test is None or can_change(turn.test, function, analysis) else _FIXED
    kind = _kind(separation)
    step = _step(separation, analysis)
    fork = Fork(
        kind=kind,
        function=function,
        node=turn.node,
        test=turn.test,
        reasons=reasons,
        step=step,
        cohort=sides.odd.cohort,
        confidence=0.0,
        sentence=_describe(kind, separation, step, sides) + because(reasons),
    )
    return Weighed(fork, weight)


def _why(turn: Turn, function: Function, analysis: Analysis) -> tuple[Reasons, float]:
    if turn.test is not None:
        return how_different(turn.node, turn.test, function, analysis)
    assert isinstance(turn.node, ast.ExceptHandler)
    return how_caught(turn.node, function, analysis)


def _kind(separation: Separation) -> ForkKind:
    turn = separation.turn
    if isinstance(turn.node, ast.ExceptHandler):
        return ForkKind.CAUGHT
    if isinstance(turn.node, ast.For | ast.AsyncFor | ast.While):
        return ForkKind.LOOP
    if separation.odd is not None and exit_of(separation.odd.block) in {"return", "continue", "break"}:
        return ForkKind.LEFT
    return ForkKind.SKIPPED


def _step(separation: Separation, analysis: Analysis) -> CommStep | None:
    """The first communication in what one of the two sides ran."""
    for turn in (separation.usual, separation.odd):
        steps = analysis.branches.steps(turn.block, separation.function) if turn is not None else ()
        if steps:
            return steps[0]
    return None


def _describe(kind: ForkKind, separation: Separation, step: CommStep | None, sides: Sides) -> str:
    odd, usual = name_ranks(sides.odd.ranks, 2), name_ranks(sides.usual.ranks, 2)
    call = name_step(step) if step is not None else sides.usual.op or "the call that the others wait in"
    turn = separation.turn
    condition = tell_condition(turn.test, separation.function)
    match kind:
        case ForkKind.CAUGHT:
            caught = tell_condition(getattr(turn.node, "type", None), separation.function)
            happened = f"{odd} caught {caught} here and went on without {call}"
            if turn is not separation.odd:
                happened = f"{usual} caught {caught} here and {odd} did not"
        case ForkKind.LOOP:
            than = "" if sides.same_rank else f" than on {usual}"
            happened = f"the loop over {condition} ran a different number of rounds on {odd}{than}"
        case ForkKind.LEFT:
            block = separation.odd.block if separation.odd else ()
            happened = (
                f"{_outcome(separation, condition)} {odd}, which took the `{exit_of(block)}`; {usual} went on to {call}"
            )
        case _:
            happened = f"{_outcome(separation, condition)} {odd}, {_taken(separation.odd, usual)}"
    return f"in an earlier round, {happened}" if separation.slip else happened


def _outcome(separation: Separation, condition: str) -> str:
    """How the condition went, to be followed by the ranks."""
    odd = separation.odd
    if odd is None or not isinstance(odd.node, ast.If):
        return f"{condition} went differently on"
    return f"{condition} was {'true' if odd.block is odd.node.body else 'false'} on"


def _taken(odd: Turn | None, usual: str) -> str:
    if odd is None or not isinstance(odd.node, ast.If):
        return f"compared with {usual}"
    if not odd.block:
        return f"which skipped this branch; {usual} took it"
    taken = "this branch" if odd.block is odd.node.body else "the `else`"
    return f"which took {taken}; {usual} did not"
