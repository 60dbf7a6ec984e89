"""Claims about one seq of a group: ranks issued an operation there, or have not reached it."""

from typing import Literal

from forkpoint.agent.case import Claim, ClaimCheck, ClaimStatus
from forkpoint.agent.claims.held import (
    COLLECTIVES,
    Held,
    channels_of,
    claimed_group,
    differs_from,
    held_at,
    messages_at,
    missing_at,
    missing_on,
    other_call_there,
    plain_op,
    same_op,
    tally,
)
from forkpoint.brief.case import Case
from forkpoint.brief.naming import named, number, told_ranks
from forkpoint.model.op import split_name
from forkpoint.model.timeline import GroupTimeline

# ---------------------------------------------------------------------------------------------------------------------
# Ranks issued an operation at one seq of a group.
#
# | every rank | is |
# |---|---|
# | recorded an op with that name at that seq of the group | supported |
# | is not in the declared group, recorded another op there, or has not come that far (one rank is enough) | contradicted |
# | has no dump, or one that no longer holds the seq; recorded a name that the claimed op may have; its recorder keeps no
#   messages (gloo); the group is unknown or ambiguous | unverifiable |
#
# `send` and `recv` are numbered on each channel: any channel of the rank will do, or the one that `send 0->1` names.

_MESSAGES = frozenset({"send", "recv"})
NO, SILENT = ClaimStatus.CONTRADICTED, ClaimStatus.UNVERIFIABLE


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

    def check(self, case: Case) -> ClaimCheck:
        group = claimed_group(self.group, self.ranks, case)
        if isinstance(group, ClaimCheck):
            return group
        op = plain_op(self.op)
        if op in _MESSAGES:
            message, channels = (op, split_name(self.op)[2]), channels_of(self.ranks, group, case)
            found = {r: messages_at(r, group, self.seq, message, of_rank, case) for r, of_rank in channels.items()}
        else:
            found = {r: held_at(r, group, self.seq, case) for r in set(self.ranks)}
            if op not in COLLECTIVES:  # a batch of messages has a number of its own
                found = {
                    r: Held(SILENT, f"{h.why}, but {named(self.op)} may have other numbers") if h.status is NO else h
                    for r, h in found.items()
                }
        return tally({rank: (self._judge(held, rank), held.fact) for rank, held in found.items()})

    def _judge(self, held: Held, rank: int) -> tuple[ClaimStatus, str]:
        if held.status is not ClaimStatus.SUPPORTED:
            return held.status, held.why
        if any(same_op(self.op, op) for op in held.ops):
            return ClaimStatus.SUPPORTED, held.why
        other = f"rank {rank} issued {' and '.join(held.ops)} there"
        if differs_from(self.op, held.ops):
            return ClaimStatus.CONTRADICTED, other
        return ClaimStatus.UNVERIFIABLE, f"{other}; {named(self.op)} may be recorded under that name"


# ---------------------------------------------------------------------------------------------------------------------
# Ranks have not reached a seq of a group that other members have reached.
#
# | every rank | is |
# |---|---|
# | has a dump that goes far enough and holds nothing at that seq or later, and another member reached it | supported |
# | is not in the declared group, or made the same call there as the others (one rank is enough) | contradicted |
# | made another call there than others, so that it may have left one out; has no dump, or one that ends early or begins later; no member has come that far; the group is ambiguous | unverifiable |
#
# If no member has a collective with that seq, messages with that number are compared: one end has it, the other does not.


class Missing(Claim):
    """Who has not reached a call that others have."""

    kind: Literal["missing"]
    ranks: list[int]
    group: str
    """Its name or description."""
    seq: int
    """With a channel, the number of the message on it."""
    channel: list[int] | None = None
    """[source, destination] of a message, as global ranks."""

    def sentence(self) -> str:
        have = "has" if len(set(self.ranks)) == 1 else "have"
        if self.channel is not None:
            way = "->".join(map(number, self.channel[:2]))
            return f"{told_ranks(self.ranks)} {have} not reached message {number(self.seq)} of {way} in {named(self.group)}"
        return f"{told_ranks(self.ranks)} {have} not reached seq {number(self.seq)} of {named(self.group)}"

    def check(self, case: Case) -> ClaimCheck:
        group = claimed_group(self.group, self.ranks, case)
        if isinstance(group, ClaimCheck):
            return group
        if self.channel is not None:
            return self._check_channel(group, self.channel, case)
        gaps = frozenset(group.gap(rank, self.seq) for rank in group.group.ranks)
        channels = channels_of(self.ranks, group, case)
        found = {rank: missing_at(rank, group, self.seq, gaps, of_rank, case) for rank, of_rank in channels.items()}
        found = {rank: self._if_same_call(rank, held, group, case) for rank, held in found.items()}
        return tally({rank: ((held.status, held.why), held.fact) for rank, held in found.items()})

    def _if_same_call(self, rank: int, held: Held, group: GroupTimeline, case: Case) -> Held:
        """A rank that left out a call gives its number to the next one: that it has another call there contradicts nothing."""
        other = other_call_there(rank, group, self.seq, case) if held.status is NO else None
        return Held(SILENT, f"{held.why}, but {other}", held.ops, held.fact) if other else held

    def _check_channel(self, group: GroupTimeline, channel: list[int], case: Case) -> ClaimCheck:
        found: dict[int, Held] = {}
        for rank, of_rank in channels_of(self.ranks, group, case).items():
            meant = [c for c in of_rank if [c.source, c.destination] == channel]
            nothing = Held(
                ClaimStatus.UNVERIFIABLE, f"neither end of this channel of rank {rank} has a recorded message"
            )
            found[rank] = missing_on(rank, meant[0], self.seq, case) if meant else nothing
        return tally({rank: ((held.status, held.why), held.fact) for rank, held in found.items()})
