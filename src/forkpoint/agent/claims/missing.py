"""Ranks have not come to a position of a group's order at which others are.

| every rank | is |
|---|---|
| has a dump that goes far enough, holds nothing at that seq or later, and another member is there | supported |
| is not of the group, or was there (one of them is enough); or no member has come so far | contradicted |
| has no dump, or one that ends early or begins later; the group is not one, or not one alone | unverifiable |

Where no member has a collective of that seq, messages of that number are looked at: one end has it, the other not.
"""

from typing import Literal

from forkpoint.agent.case import Case
from forkpoint.agent.claim import Check, Claim
from forkpoint.agent.claims.slots import channels_of, claimed_group, missing_at, tally
from forkpoint.agent.claims.wording import named, number, told_ranks


class Missing(Claim):
    """Who has not come to a position at which others are."""

    kind: Literal["missing"]
    ranks: list[int]
    group: str
    """Its name or description."""
    seq: int

    def sentence(self) -> str:
        have = "has" if len(set(self.ranks)) == 1 else "have"
        return f"{told_ranks(self.ranks)} {have} not come to seq {number(self.seq)} of {named(self.group)}"

    def check(self, case: Case) -> Check:
        group = claimed_group(self.group, self.ranks, case)
        if isinstance(group, Check):
            return group
        gaps = frozenset(group.gap(rank, self.seq) for rank in group.group.ranks)
        channels = channels_of(self.ranks, group, case)
        found = {rank: missing_at(rank, group, self.seq, gaps, of_rank, case) for rank, of_rank in channels.items()}
        return tally({rank: ((held.status, held.why), held.fact) for rank, held in found.items()})
