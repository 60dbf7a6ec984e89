"""Who waits for whom: each rank's earliest op that is not done, and the ranks that keep it from finishing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from forkpoint.model.timeline import Channel, Gap, GroupTimeline, Position, Stand, Timeline
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


@dataclass(frozen=True, slots=True)
class _Held:
    """What an op waits for, as in `Wait`."""

    absent: tuple[int, ...] = ()
    busy: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Waiting:
    """All ranks that stand in one slot, and so wait for the same. Who stands in a batch of messages waits by itself."""

    ranks: list[int]
    first_ns: int
    first_rank: int
    """When the first of them came, and which it is."""
    absent: tuple[int, ...]
    busy: tuple[int, ...]
    unknown: tuple[int, ...]

    @property
    def on(self) -> tuple[int, ...]:
        return (*self.absent, *self.busy)

    def add(self, rank: int, came_ns: int) -> None:
        self.ranks.append(rank)
        self.first_ns, self.first_rank = min((self.first_ns, self.first_rank), (came_ns, rank))


class Waits(Mapping[int, Wait]):
    """By rank; each is made when it is asked for. Ranks with nothing pending wait for nobody, and are not in it."""

    def __init__(self, timeline: Timeline, waiting: Sequence[Waiting]) -> None:
        self.waiting = waiting
        """Each with what it waits for, by the lowest rank of it."""
        self._timeline = timeline
        self._of_rank = {rank: one for one in waiting for rank in one.ranks}

    def with_rank(self, rank: int) -> Waiting:
        return self._of_rank[rank]

    def stand(self, rank: int) -> Stand:
        """Of what it stands in, that by which its wait is told."""
        held = self._timeline.stands[rank]
        return held[0] if len(held) == 1 else _worst(rank, held, self._timeline)[0]

    def beside(self, rank: int) -> list[int]:
        """All ranks, itself too, that stand in the same slot of the group, or at the same message of the channel."""
        own = self.stand(rank)
        if own.channel is None:
            return self.with_rank(rank).ranks
        ends = [end for end in sorted(set(own.channel)) if end in self]
        return [end for end in ends if _slot(self.stand(end)) == _slot(own)]

    def __getitem__(self, rank: int) -> Wait:
        waiting, record_id = self._of_rank[rank], self.stand(rank).record_id
        position = next(p for p in self._timeline.positions[rank] if p.op.record_id == record_id)
        return Wait(rank, position, waiting.absent, waiting.busy, waiting.unknown)

    def __contains__(self, rank: object) -> bool:
        return rank in self._of_rank

    def __iter__(self) -> Iterator[int]:
        return iter(self._of_rank)

    def __len__(self) -> int:
        return len(self._of_rank)


def _slot(stand: Stand) -> tuple[ProcessGroup, tuple[int, int] | None, int]:
    return stand.group, stand.channel, stand.seq


def find_waits(timeline: Timeline) -> Waits:
    groups = {g.group: g for g in timeline.groups}
    found: list[Waiting] = []
    in_slot: dict[tuple[ProcessGroup, int], Waiting] = {}
    for rank, held in timeline.stands.items():
        first = held[0]
        if first.channel is not None:
            stand, held_by = _worst(rank, held, timeline)
            found.append(_waiting(rank, stand, held_by))
        elif slot := in_slot.get((first.group, first.seq)):  # asked once per slot, not once per rank
            slot.add(rank, first.created_ns)
        else:
            found.append(_waiting(rank, first, _held_in_group(groups[first.group], first.seq, timeline)))
            in_slot[first.group, first.seq] = found[-1]
    return Waits(timeline, found)


def _waiting(rank: int, stand: Stand, held: _Held) -> Waiting:
    return Waiting([rank], stand.created_ns, rank, held.absent, held.busy, held.unknown)


def _worst(rank: int, stands: tuple[Stand, ...], timeline: Timeline) -> tuple[Stand, _Held]:
    """A batch waits for all peers of its messages; it is told by the message that misses its peer most."""
    held = [_held_on_channel(rank, stand, timeline) for stand in stands]
    misses = [(bool(h.absent), bool(h.unknown), bool(h.busy)) for h in held]
    absent = {r for h in held for r in h.absent}
    busy = {r for h in held for r in h.busy} - absent
    unknown = {r for h in held for r in h.unknown}
    joined = _Held(tuple(sorted(absent)), tuple(sorted(busy)), tuple(sorted(unknown)))
    return stands[misses.index(max(misses))], joined


def earliest(waiting: Iterable[Waiting]) -> int:
    """The rank of all these that came first."""
    return min((one.first_ns, one.first_rank) for one in waiting)[1]


def who_misses(rank: int, waits: Waits) -> list[int]:
    """Ranks that wait in a slot to which this one has not come."""
    return [waiting for one in waits.waiting if rank in one.absent for waiting in one.ranks]


def _held_in_group(group: GroupTimeline, seq: int, timeline: Timeline) -> _Held:
    absent: list[int] = []
    busy: list[int] = []
    unknown: list[int] = []
    elsewhere = timeline.stands.held_elsewhere(group)
    for rank in group.group.ranks:
        gap = group.gap(rank, seq)
        if gap is Gap.NOT_REACHED:
            absent.append(rank)
        elif gap is not None or rank in timeline.blind:  # a cut dump does not show what holds its rank
            unknown.append(rank)
        elif rank in elsewhere:
            busy.append(rank)
    return _Held(tuple(absent), tuple(busy), (*unknown, *group.maybe))


def _held_on_channel(rank: int, stand: Stand, timeline: Timeline) -> _Held:
    assert stand.index is not None  # the caller has looked
    channel = timeline.channels[stand.index]
    peer, track = (channel.destination, channel.received)
    if rank == channel.destination:
        peer, track = (channel.source, channel.sent)
    if peer not in timeline.traces or peer in timeline.blind:
        return _Held(unknown=(peer,))
    if track is None or not _has_issued(track, stand.seq, counted=channel.counted):
        return _Held(absent=(peer,))
    if track.active_seq is not None and _is_held_before(rank, peer, stand, channel, track, timeline):
        return _Held(busy=(peer,))
    return _Held()


def _has_issued(track: Track, number: int, *, counted: bool) -> bool:
    return track.last_seq >= number if counted else track.active_seq is not None


def _is_held_before(rank: int, peer: int, stand: Stand, channel: Channel, track: Track, timeline: Timeline) -> bool:
    """The peer issued the message, but an earlier op in another group or channel is not done. If the message is of the
    batch in which the peer stands, and all of that batch is between these two, nothing else holds it.
    """
    batch = timeline.stands[peer]
    is_of_batch = any((s.group, s.channel) == (stand.group, stand.channel) for s in batch)
    partners = {end for s in batch for end in s.channel or ()}
    if is_of_batch and partners == {rank, peer} and (not channel.counted or track.active_seq == stand.seq):
        return False
    return (batch[0].group, batch[0].channel) != (stand.group, stand.channel)
