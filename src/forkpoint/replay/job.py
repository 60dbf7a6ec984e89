"""The recorded end of a job, reduced to what a replay needs: who waits in which slot, and for whom.

Ranks that wait in the same slot share an entry, so a job of 100,000 ranks has only as many entries as pending slots.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, Self

from msgspec import Struct

from forkpoint.diverge.waits import Waits
from forkpoint.model.incident import Divergence, PartingKind
from forkpoint.model.timeline import Timeline
from forkpoint.model.world import ProcessGroup, name_ranks

_MISFIT = frozenset({PartingKind.METADATA, PartingKind.VOLUME, PartingKind.MESSAGE})


class Slot(Struct, frozen=True, eq=False):
    """A call in which ranks wait."""

    group: ProcessGroup
    channel: tuple[int, int] | None
    seq: int
    waiting: frozenset[int]
    absent: frozenset[int]
    """Needed here, and have not issued it."""
    busy: frozenset[int]
    """Have issued it, but are blocked in an earlier call."""
    unknown: frozenset[int]
    """Needed here, but the evidence does not show what they did."""
    misfit: bool
    """The ranks' calls in this slot do not match."""

    @property
    def missing(self) -> frozenset[int]:
        return self.absent | self.unknown

    def __str__(self) -> str:
        if self.channel:
            return f"the message {self.channel[0]}->{self.channel[1]}"
        return f"{self.group} seq {self.seq}"


class Job(Struct, frozen=True):
    slots: tuple[Slot, ...]
    stands: Mapping[int, Slot]
    """The slot in which each waiting rank waits."""
    free: frozenset[int]
    """Missing ranks whose dump, or at least its counters, shows nothing pending: they could issue any call."""
    elsewhere: frozenset[int]
    """Missing ranks that are in a call that no dump shows, according to their stack or to the counters of a cut dump."""
    needed_in: Mapping[int, list[Slot]]
    """By rank: the slots that cannot finish before the rank reaches them."""
    unknown_in: Mapping[int, list[Slot]]
    """By rank: the slots for which it is unknown what the rank did."""

    @classmethod
    def of(
        cls,
        timeline: Timeline,
        waits: Waits,
        divergences: Iterable[Divergence],
        elsewhere: frozenset[int] = frozenset(),
    ) -> Self:
        misfits = {(d.group, d.channel, at) for d in divergences if d.how in _MISFIT for at in (d.seq, d.hang_seq)}
        slots: list[Slot] = []
        stands: dict[int, Slot] = {}
        for waiting in waits.waiting:
            stand, held = waits.stand(waiting.ranks[0]), waiting.held
            slot = Slot(
                stand.group,
                stand.channel,
                stand.seq,
                frozenset(waiting.ranks),
                frozenset(held.absent),
                frozenset(held.busy),
                frozenset(held.unknown),
                (stand.group, stand.channel, stand.seq) in misfits,
            )
            slots.append(slot)
            stands.update(dict.fromkeys(waiting.ranks, slot))
        missed = frozenset(rank for slot in slots for rank in slot.absent if rank not in stands)
        free = missed & timeline.idle.union(timeline.positions)
        elsewhere = (elsewhere & free) | (missed - free)
        needed_in, unknown_in = _by_rank(slots, "absent", "busy"), _by_rank(slots, "unknown")
        for rank in elsewhere:  # what blocks it there is not recorded
            unknown_in.setdefault(rank, []).extend(needed_in.get(rank, ()))
        return cls(tuple(slots), stands, free, elsewhere, needed_in, unknown_in)


def _by_rank(slots: Iterable[Slot], *parts: Literal["absent", "busy", "unknown"]) -> dict[int, list[Slot]]:
    found: dict[int, list[Slot]] = {}
    for slot in slots:
        for rank in (rank for part in parts for rank in getattr(slot, part)):
            found.setdefault(rank, []).append(slot)
    return found


def tell_slots(slots: Iterable[Slot], limit: int = 2) -> str:
    """`default_pg seq 23 (ranks 0-3) and 2 more calls`."""
    each = [f"{slot} ({name_ranks(slot.waiting)})" for slot in slots]
    left = len(each) - limit
    more = f" and {left} more {'call' if left == 1 else 'calls'}" if left > 0 else ""
    return f"{', '.join(each[:limit])}{more}"
