"""How right a verdict is about a planted fault."""

from dataclasses import dataclass
from typing import Self

from bench.scale.faults import FaultKind, Slot, World
from forkpoint.model.incident import Divergence
from forkpoint.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Score:
    cause: bool
    who: bool
    """The suspects are the planted rank, and nobody else. Of a lost rank: or it is named as the only one not known."""
    where: bool
    """Group and number of the slot, or the channel, are those of the fault."""
    innocents: tuple[int, ...]
    """Ranks that are accused and did nothing."""

    @classmethod
    def of(cls, verdict: Verdict, world: World) -> Self:
        divergence = verdict.divergence
        missed = divergence.unknown if divergence and world.kind is FaultKind.LOST and not verdict.suspects else ()
        return cls(
            cause=verdict.cause in world.causes,
            who=(verdict.suspects or missed) == (world.rank,),
            where=divergence is not None and any(_is_at(divergence, slot, world) for slot in world.slots),
            innocents=tuple(rank for rank in verdict.suspects if rank != world.rank),
        )

    @property
    def exact(self) -> bool:
        return self.cause and self.who and self.where


def _is_at(divergence: Divergence, slot: Slot, world: World) -> bool:
    """Messages of a wrapped ring buffer have no number on which both ends agree: their channel is all there is to name."""
    same_group = divergence.group.name == world.mesh.group_name(world.rank, slot.kind)
    same_seq = slot.channel is not None or divergence.seq == slot.seq
    return same_group and divergence.channel == slot.channel and same_seq
