"""What happened at a fork, in one plain sentence."""

import ast

from forkpoint.bridge.flow import Choice
from forkpoint.bridge.fork import ForkKind
from forkpoint.bridge.part import Parting
from forkpoint.bridge.sides import Sides
from forkpoint.model.ranks import name_ranks
from forkpoint.source.branches import Step, leaving
from forkpoint.source.code import Function
from forkpoint.source.tell import name_step, tell_reason
from forkpoint.source.value import Reasons

_MAX_CONDITION = 80


def describe(kind: ForkKind, parting: Parting, reasons: Reasons, step: Step | None, sides: Sides) -> str:
    odd, usual = name_ranks(sides.odd.ranks, 2), name_ranks(sides.usual.ranks, 2)
    call = name_step(step) if step is not None else sides.usual.op or "the call in which the others wait"
    condition = tell_condition(parting.choice.test, parting.function)
    match kind:
        case ForkKind.CAUGHT:
            caught = tell_condition(getattr(parting.choice.node, "type", None), parting.function)
            happened = f"{odd} caught {caught} here and went on without {call}"
        case ForkKind.LOOP if sides.same_rank:
            happened = f"the loop over {condition} ran a different number of rounds on {odd}"
        case ForkKind.LOOP:
            happened = f"the loop over {condition} ran a different number of rounds on {odd} than on {usual}"
        case ForkKind.LEFT:
            way = leaving(parting.odd.block) if parting.odd else None
            happened = f"by {condition} {odd} took the `{way}`, and {usual} went on to {call}"
        case _:
            happened = f"by {condition} {odd} {_way(parting.odd)}, and {usual} did not"
    earlier = "in an earlier round " if parting.slip else ""
    return f"{earlier}{happened}{because(reasons)}"


def _way(choice: Choice | None) -> str:
    """What a side did at a branch: into its body, into its `else`, or past it."""
    if choice is None or not choice.block:
        return "passed this by"
    other: object = getattr(choice.node, "orelse", None)
    in_else = isinstance(other, list) and bool(other) and choice.block[0] is other[0]
    return "took the `else` here" if in_else else "went in here"


def tell_condition(test: ast.expr | None, function: Function) -> str:
    text = function.module.source(test) if test is not None else "any exception"
    return f"`{text if len(text) <= _MAX_CONDITION else text[: _MAX_CONDITION - 3] + '...'}`"


def because(reasons: Reasons) -> str:
    best = min(reasons, key=lambda r: r.key, default=None)
    return f"; {tell_reason(best)}" if best else ""
