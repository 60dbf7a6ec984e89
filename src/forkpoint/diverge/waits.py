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
    stands = {rank: _stand(positions) for rank, positions in timeline.positions.items() if positions}
    waits: dict[int, Wait] = {}
    in_slot: dict[tuple[ProcessGroup, int], Wait] = {}
    for rank, held in stands.items():
        first = held[0]
        if first.channel is None:
            # All who stand in one slot wait for the same ranks: asked once per slot, not once per rank.
            slot = (first.group, first.op.seq)
            if slot not in in_slot:
                in_slot[slot] = _wait_in_group(rank, first, groups[first.group], stands, timeline)
            waits[rank] = replace(in_slot[slot], rank=rank, position=first)
        else:
            ends = [(p, channels[p.group, *p.channel]) for p in held if p.channel]
            waits[rank] = _joined([_wait_on_channel(rank, p, channel, stands, timeline) for p, channel in ends])
    return waits


_Stands = dict[int, tuple[Position, ...]]
"""By rank with something pending: the one op in which it stands, or all messages of the batch in which it does."""


def _stand(positions: tuple[Position, ...]) -> tuple[Position, ...]:
    first = positions[0]
    if first.channel is None:
        return (first,)
    return tuple(p for p in positions if p.channel and (p.group, p.op.batch) == (first.group, first.op.batch))


def _joined(waits: list[Wait]) -> Wait:
    """A batch waits for all peers of its messages; it is told by the message that misses its peer most."""
    worst = max(waits, key=lambda w: (bool(w.absent), bool(w.unknown), bool(w.busy)))
    absent = {r for w in waits for r in w.absent}
    busy = {r for w in waits for r in w.busy} - absent
    unknown = {r for w in waits for r in w.unknown}
    return Wait(worst.rank, worst.position, tuple(sorted(absent)), tuple(sorted(busy)), tuple(sorted(unknown)))


def find_cycle(waits: dict[int, Wait]) -> tuple[int, ...]:
    """Ranks that wait for each other in a ring; empty without one."""
    graph: dict[int | _Held, list[int | _Held]] = {}
    for rank, wait in sorted(waits.items()):
        # Who stands in a slot with others waits for what holds the slot: one edge each, however many it waits for.
        held = _held(wait)
        graph[rank] = [held]
        if held not in graph:
            graph[held] = [other for other in sorted(wait.on) if other in waits]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        ring: list[int | _Held] = error.args[1]
        ranks = [node for node in ring[:-1] if isinstance(node, int)]
        first = ranks.index(min(ranks))
        return (*ranks[first:], *ranks[:first])
    return ()


def first_in_slots(waits: dict[int, Wait]) -> list[Wait]:
    """Of all who stand in one slot, and so wait for the same, the one that was there first."""
    found: dict[_Held, Wait] = {}
    for wait in waits.values():
        known = found.setdefault(_held(wait), wait)
        if _issued(wait) < _issued(known):
            found[_held(wait)] = wait
    return list(found.values())


def earliest(waits: list[Wait]) -> Wait:
    return min(waits, key=_issued)


def who_misses(rank: int, waits: dict[int, Wait]) -> list[int]:
    """Ranks that wait in a slot to which this one has not come."""
    slots = {_held(wait) for wait in first_in_slots(waits) if rank in wait.absent}
    return [waiting for waiting, wait in waits.items() if _held(wait) in slots]


def _issued(wait: Wait) -> tuple[int, int]:
    return wait.position.op.created_ns, wait.rank


_Held = tuple[int, int, int]


def _held(wait: Wait) -> _Held:
    """The same for all who stand in one slot: they share what they wait for. Who waits for nobody is alike anyway."""
    return id(wait.absent), id(wait.busy), id(wait.unknown)


def _wait_in_group(rank: int, position: Position, group: GroupTimeline, stands: _Stands, timeline: Timeline) -> Wait:
    absent: list[int] = []
    busy: list[int] = []
    unknown: list[int] = []
    for other in group.group.ranks:
        gap = group.gap(other, position.op.seq)
        if gap is Gap.NOT_REACHED:
            absent.append(other)
        elif gap is not None or other in timeline.blind:  # a cut dump does not show what holds its rank
            unknown.append(other)
        elif _held_before(other, position, group.track(other), stands):
            busy.append(other)
    return Wait(rank, position, tuple(absent), tuple(busy), (*unknown, *group.maybe))


def _wait_on_channel(rank: int, position: Position, channel: Channel, stands: _Stands, timeline: Timeline) -> Wait:
    peer, track = (channel.destination, channel.received)
    if rank == channel.destination:
        peer, track = (channel.source, channel.sent)
    if peer not in timeline.traces or peer in timeline.blind:
        return Wait(rank, position, (), (), (peer,))
    if not _has_issued(track, position.op.seq, counted=channel.counted):
        return Wait(rank, position, (peer,), (), ())
    alone = _only_with(rank, peer, track, stands) and (not channel.counted or _number(track) == position.op.seq)
    held = not alone and _held_before(peer, position, track, stands)
    return Wait(rank, position, (), (peer,) if held else (), ())


def _number(track: Track | None) -> int | None:
    """Of the message in which this end of a channel stands."""
    return track.first_active.seq if track and track.first_active else None


def _has_issued(track: Track | None, number: int, *, counted: bool) -> bool:
    if track is None:
        return False
    return track.last_seq >= number if counted else track.first_active is not None


def _held_before(rank: int, position: Position, track: Track | None, stands: _Stands) -> bool:
    """The rank issued the op of `position`, but an earlier op in another group or channel is not done."""
    if rank not in stands or track is None:
        return False
    first = stands[rank][0]
    if (first.group, first.channel) == (position.group, position.channel):
        return False
    active = track.first_active
    return active is not None and first.op.record_id < active.record_id


def _only_with(rank: int, peer: int, track: Track | None, stands: _Stands) -> bool:
    """The peer stands in the batch of this very message, and all of that batch is between these two: nothing else holds it."""
    batch = stands.get(peer, ())
    active = track.first_active if track else None
    partners = {end for p in batch for end in p.channel or ()}
    return active is not None and any(p.op == active for p in batch) and partners == {rank, peer}
