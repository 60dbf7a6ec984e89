"""How well a parting explains what was seen, and what is said of it."""

import ast

from forkpoint.bridge.flow import Choice
from forkpoint.bridge.fork import Fork, ForkKind
from forkpoint.bridge.part import Parting
from forkpoint.bridge.sides import Sides
from forkpoint.bridge.weighed import Weighed
from forkpoint.bridge.why import can_change, how_caught, how_different
from forkpoint.bridge.words import describe
from forkpoint.source.analysis import Analysis
from forkpoint.source.branches import Step, leaving
from forkpoint.source.code import Function
from forkpoint.source.value import Reasons

_SLIP = 0.6
"""It can only have happened unseen, in an earlier round."""
_UNSEEN = 0.8
"""Likewise, of a rank whose calls are not recorded."""
_FIXED = 0.1
"""It went the other way in the rounds before, and nothing in the condition can change."""
LEAST = 0.1
"""Below this nothing is shown: a wrong place costs more than none."""
_PER_COST = 0.9
"""Each unit that the way through it costs more than the cheapest one makes it less likely."""


def weigh(parting: Parting, sides: Sides, analysis: Analysis) -> Weighed:
    choice, function = parting.choice, parting.function
    reasons, differs = _why(choice, function, analysis)
    weight = differs * (0.4 + 0.6 * parting.separates) * _PER_COST**parting.slack
    if parting.slip:
        weight *= _SLIP if sides.odd.recorded else _UNSEEN
    if parting.slip or sides.same_rank:
        weight *= 1.0 if choice.test is None or can_change(choice.test, function, analysis) else _FIXED
    kind = _kind(parting)
    step = _step(parting, analysis)
    fork = Fork(
        kind=kind,
        function=function,
        node=choice.node,
        test=choice.test,
        reasons=reasons,
        step=step,
        cohort=sides.odd.cohort,
        confidence=0.0,
        sentence=describe(kind, parting, reasons, step, sides),
    )
    return Weighed(fork, weight)


def _why(choice: Choice, function: Function, analysis: Analysis) -> tuple[Reasons, float]:
    if choice.test is not None:
        return how_different(choice.node, choice.test, function, analysis)
    assert isinstance(choice.node, ast.ExceptHandler)
    return how_caught(choice.node, function, analysis)


def _kind(parting: Parting) -> ForkKind:
    choice = parting.choice
    if isinstance(choice.node, ast.ExceptHandler):
        return ForkKind.CAUGHT
    if isinstance(choice.node, ast.For | ast.AsyncFor | ast.While):
        return ForkKind.LOOP
    if parting.odd is not None and leaving(parting.odd.block) in {"return", "continue", "break"}:
        return ForkKind.LEFT
    return ForkKind.SKIPPED


def _step(parting: Parting, analysis: Analysis) -> Step | None:
    """The first communication that stands on one of the two ways."""
    for choice in (parting.usual, parting.odd):
        steps = analysis.ways.steps(choice.block, parting.function) if choice is not None else ()
        if steps:
            return steps[0]
    return None
