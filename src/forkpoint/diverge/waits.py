"""Who waits for whom: each rank's earliest op that is not done, and the ranks that keep it from finishing."""

from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from forkpoint.model.timeline import Channel, Gap, GroupTimeline, Position, Timeline
from forkpoint.model.trace import Track
from forkpoint.model.world import ProcessGroup


@dataclass(frozen=True, slots=True)
class Wait:
    rank: int
    position: Position
    absent: tuple[int, ...]
    """Ranks that have not come to this slot."""
    busy: tuple[int, ...]
    """Ranks that issued it but are held by an earlier op of their own."""
    unknown: tuple[int, ...]
    """Ranks whose part the evidence does not show, and that may be members."""

    @property
    def on(self) -> tuple[int, ...]:
        return (*self.absent, *self.busy)


def find_waits(timeline: Timeline) -> dict[int, Wait]:
    """By rank. Ranks with nothing pending wait for nobody."""
    groups = {g.group: g for g in timeline.groups}
    channels = {(c.group, c.source, c.destination): c for c in timeline.channels}
    waits: dict[int, Wait] = {}
    in_slot: dict[tuple[ProcessGroup, int], Wait] = {}
    for rank, positions in timeline.positions.items():
        if not positions:
            continue
        first = positions[0]
        if first.channel is None:
            # All who stand in one slot wait for the same ranks: asked once per slot, not once per rank.
            slot = (first.group, first.op.seq)
            if slot not in in_slot:
                in_slot[slot] = _wait_in_group(rank, first, groups[first.group], timeline)
            waits[rank] = replace(in_slot[slot], rank=rank, position=first)
        else:
            batch = [p for p in positions if p.channel and (p.group, p.op.batch) == (first.group, first.op.batch)]
            held = [_wait_on_channel(rank, p, channels[p.group, *p.channel], timeline) for p in batch if p.channel]
            waits[rank] = _joined(held)
    return waits


def _joined(waits: list[Wait]) -> Wait:
    """A batch waits for all peers of its messages; it is told by the message that misses its peer most."""
    worst = max(waits, key=lambda w: (bool(w.absent), bool(w.unknown), bool(w.busy)))
    absent = {r for w in waits for r in w.absent}
    busy = {r for w in waits for r in w.busy} - absent
    unknown = {r for w in waits for r in w.unknown}
    return Wait(worst.rank, worst.position, tuple(sorted(absent)), tuple(sorted(busy)), tuple(sorted(unknown)))


def find_cycle(waits: dict[int, Wait]) -> tuple[int, ...]:
    """Ranks that wait for each other in a ring; empty without one."""
    graph = {rank: [other for other in sorted(wait.on) if other in waits] for rank, wait in sorted(waits.items())}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        ring: list[int] = error.args[1]
        return tuple(ring[:-1])
    return ()


def _wait_in_group(rank: int, position: Position, group: GroupTimeline, timeline: Timeline) -> Wait:
    absent: list[int] = []
    busy: list[int] = []
    unknown: list[int] = []
    for other in group.group.ranks:
        gap = group.gap(other, position.op.seq)
        if gap is Gap.NOT_REACHED:
            absent.append(other)
        elif gap is not None or other in timeline.blind:  # a cut dump does not show what holds its rank
            unknown.append(other)
        elif _held_before(other, position, group.track(other), timeline):
            busy.append(other)
    return Wait(rank, position, tuple(absent), tuple(busy), (*unknown, *group.maybe))


def _wait_on_channel(rank: int, position: Position, channel: Channel, timeline: Timeline) -> Wait:
    peer, track = (channel.destination, channel.received)
    if rank == channel.destination:
        peer, track = (channel.source, channel.sent)
    if peer not in timeline.traces or peer in timeline.blind:
        return Wait(rank, position, (), (), (peer,))
    if not _has_issued(track, position.op.seq, counted=channel.counted):
        return Wait(rank, position, (peer,), (), ())
    return Wait(rank, position, (), (peer,) if _held_before(peer, position, track, timeline) else (), ())


def _has_issued(track: Track | None, number: int, *, counted: bool) -> bool:
    if track is None:
        return False
    return track.last_seq >= number if counted else track.first_active is not None


def _held_before(rank: int, position: Position, track: Track | None, timeline: Timeline) -> bool:
    """The rank issued the op of `position`, but an earlier op in another group or channel is not done."""
    stands = timeline.positions.get(rank, ())
    if not stands or track is None or track.first_active is None:
        return False
    first = stands[0]
    return (first.group, first.channel) != (
        position.group,
        position.channel,
    ) and first.op.record_id < track.first_active.record_id
