"""Ranks issued an operation at a position of a group's order.

| every rank | is |
|---|---|
| holds an op of that name at that seq of the group | supported |
| is not of the group, holds another op there, or has not come so far (one of them is enough) | contradicted |
| has no dump, or one that no longer holds the seq; the group is not one, or not one alone | unverifiable |

`send` and `recv` are numbered on each channel: any channel of the rank will do, or the one that `send 0->1` names.
"""

from typing import Literal

from forkpoint.agent.case import Case
from forkpoint.agent.claim import Check, Claim, Status
from forkpoint.agent.claims.slots import (
    Held,
    channels_of,
    claimed_group,
    held_at,
    messages_at,
    plain_op,
    same_op,
    tally,
)
from forkpoint.agent.claims.wording import named, number, told_ranks
from forkpoint.model.op_names import split_name

_MESSAGES = frozenset({"send", "recv"})


class Issued(Claim):
    """Who issued what, where."""

    kind: Literal["issued"]
    ranks: list[int]
    group: str
    """Its name or description."""
    seq: int
    """For `send` and `recv`, the number of the message on its channel."""
    op: str
    """As recorded or as called: `all_reduce`, `send 0->1`."""

    def sentence(self) -> str:
        return f"{told_ranks(self.ranks)} issued {named(self.op)} at seq {number(self.seq)} of {named(self.group)}"

    def check(self, case: Case) -> Check:
        group = claimed_group(self.group, self.ranks, case)
        if isinstance(group, Check):
            return group
        op = plain_op(self.op)
        if op in _MESSAGES:
            message, channels = (op, split_name(self.op)[2]), channels_of(self.ranks, group, case)
            found = {r: messages_at(r, group, self.seq, message, of_rank, case) for r, of_rank in channels.items()}
        else:
            found = {r: held_at(r, group, self.seq, case) for r in set(self.ranks)}
        return tally({rank: (self._judge(held, rank), held.fact) for rank, held in found.items()})

    def _judge(self, held: Held, rank: int) -> tuple[Status, str]:
        if held.status is not Status.SUPPORTED:
            return held.status, held.why
        if any(same_op(self.op, op) for op in held.ops):
            return Status.SUPPORTED, held.why
        return Status.CONTRADICTED, f"rank {rank} issued {' and '.join(held.ops)} there"
