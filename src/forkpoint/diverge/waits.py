"""Who waits for whom, and rings of ranks that wait for each other."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from forkpoint.model.incident import fact
from forkpoint.model.timeline import Gap, GroupTimeline, Position, Stand, Timeline
from forkpoint.model.trace import Track
from forkpoint.model.world import ProcessGroup


class WaitsFor(Struct, frozen=True):
    """The ranks for which an op waits."""

    absent: tuple[int, ...] = ()
    """Ranks that have not reached this slot."""
    busy: tuple[int, ...] = ()
    """Ranks that issued it but are blocked in an earlier op of their own."""
    unknown: tuple[int, ...] = ()
    """Possible members for which there is no evidence."""
    together: tuple[int, ...] = ()
    """Ends of messages that wait in the same message, each with others of its batch."""

    @property
    def on(self) -> tuple[int, ...]:
        return (*self.absent, *self.busy)


class Wait(Struct, frozen=True):
    rank: int
    position: Position
    held: WaitsFor


class Waiting(Struct, frozen=True, eq=False):
    """All ranks that wait in one slot, and so for the same ranks. A rank in a batch of messages is always alone."""

    ranks: list[int]
    held: WaitsFor


class Waits(Mapping[int, Wait]):
    """Waits by rank, created on demand. Ranks without a pending op wait for nobody and are left out."""

    def __init__(self, timeline: Timeline, waiting: Sequence[Waiting]) -> None:
        self.waiting = waiting
        """Sorted by lowest rank."""
        self._timeline = timeline
        self._of_rank = {rank: one for one in waiting for rank in one.ranks}

    def with_rank(self, rank: int) -> Waiting:
        return self._of_rank[rank]

    def stand(self, rank: int) -> Stand:
        """The op that represents the rank's wait: the worst one, if it waits in a batch of messages."""
        held = self._timeline.stands[rank]
        return held[0] if len(held) == 1 else _worst(rank, held, self._timeline)[0]

    def first(self, ranks: Iterable[int]) -> int:
        """The rank that issued its pending op first."""
        return min((self.stand(rank).created_ns, rank) for rank in ranks)[1]

    def beside(self, rank: int) -> list[int]:
        """All ranks, including this one, that wait in the same slot of the group, or at the same message of the channel."""
        own = self.stand(rank)
        if own.channel is None:
            return self.with_rank(rank).ranks
        ends = [end for end in sorted(set(own.channel)) if end in self]
        return [end for end in ends if _slot(self.stand(end)) == _slot(own)]

    def __getitem__(self, rank: int) -> Wait:
        record_id = self.stand(rank).record_id
        position = next(p for p in self._timeline.positions[rank] if p.op.record_id == record_id)
        return Wait(rank, position, self._of_rank[rank].held)

    def __contains__(self, rank: object) -> bool:
        return rank in self._of_rank

    def __iter__(self) -> Iterator[int]:
        return iter(self._of_rank)

    def __len__(self) -> int:
        return len(self._of_rank)


def _slot(stand: Stand) -> tuple[ProcessGroup, tuple[int, int] | None, int]:
    return stand.group, stand.channel, stand.seq


@fact
def find_waits(timeline: Timeline) -> Waits:
    groups = {g.group: g for g in timeline.groups}
    found: list[Waiting] = []
    in_slot: dict[tuple[ProcessGroup, int], Waiting] = {}
    for rank, stands in timeline.stands.items():
        first = stands[0]
        if first.channel is not None:
            found.append(Waiting([rank], _worst(rank, stands, timeline)[1]))
        elif slot := in_slot.get((first.group, first.seq)):  # computed once per slot, not once per rank
            slot.ranks.append(rank)
        else:
            found.append(Waiting([rank], _held_in_group(groups[first.group], first.seq, timeline)))
            in_slot[first.group, first.seq] = found[-1]
    return Waits(timeline, _joined_batches(found))


def _joined_batches(found: list[Waiting]) -> list[Waiting]:
    """Ranks that wait in messages with each other wait for whatever any of them waits for: none of them holds the others."""
    held = {one.ranks[0]: one.held for one in found if one.held.together}
    joined: list[Waiting] = []
    for one in found:
        batch = _connected(one.ranks[0], held) if one.held.together else set[int]()
        parts = [held[rank] for rank in batch if rank in held]
        joined.append(Waiting(one.ranks, _without(batch, parts)) if parts else one)
    return joined


def _connected(rank: int, held: Mapping[int, WaitsFor]) -> set[int]:
    reached, pending = {rank}, [rank]
    while pending:
        of_one = held.get(pending.pop())
        new = set(of_one.together) - reached if of_one else set[int]()
        reached |= new
        pending += new
    return reached


def _without(batch: set[int], parts: list[WaitsFor]) -> WaitsFor:
    absent = {r for part in parts for r in part.absent} - batch
    busy = {r for part in parts for r in part.busy} - absent - batch
    unknown = {r for part in parts for r in part.unknown} - batch
    return WaitsFor(tuple(sorted(absent)), tuple(sorted(busy)), tuple(sorted(unknown)))


def _worst(rank: int, stands: tuple[Stand, ...], timeline: Timeline) -> tuple[Stand, WaitsFor]:
    """A batch waits for the peers of all its messages. It is represented by the message whose peer is most clearly missing."""
    held = [_held_on_channel(rank, stand, timeline) for stand in stands]
    if len(stands) > 1 and any(h.absent or h.unknown for h in held):  # a peer that did its part blocks nothing
        held = [
            WaitsFor() if _is_done_by_peer(rank, stand, timeline) else h for stand, h in zip(stands, held, strict=True)
        ]
    misses = [(bool(h.absent), bool(h.unknown), bool(h.busy), bool(h.together)) for h in held]
    absent = {r for h in held for r in h.absent}
    busy = {r for h in held for r in h.busy} - absent
    unknown = {r for h in held for r in h.unknown}
    together = tuple(sorted({r for h in held for r in h.together} - absent - busy - unknown))
    joined = WaitsFor(tuple(sorted(absent)), tuple(sorted(busy)), tuple(sorted(unknown)), together)
    return stands[misses.index(max(misses))], joined


def _is_done_by_peer(rank: int, stand: Stand, timeline: Timeline) -> bool:
    assert stand.index is not None  # it is a message
    channel = timeline.channels[stand.index]
    track = channel.received if rank == channel.source else channel.sent
    done = track is not None and (track.active_seq is None or track.active_seq > stand.seq)
    return channel.counted and done and track is not None and track.last_seq >= stand.seq


def who_misses(rank: int, waits: Waits) -> list[int]:
    """Ranks that wait in a slot that this one has not reached."""
    return [waiting for one in waits.waiting if rank in one.held.absent for waiting in one.ranks]


def _held_in_group(group: GroupTimeline, seq: int, timeline: Timeline) -> WaitsFor:
    absent: list[int] = []
    busy: list[int] = []
    unknown: list[int] = []
    elsewhere = timeline.stands.held_elsewhere(group)
    for rank in group.group.ranks:
        gap = group.gap(rank, seq)
        if gap is Gap.NOT_REACHED:
            absent.append(rank)
        elif gap is not None or rank in timeline.blind:  # a cut dump does not show where its rank is blocked
            unknown.append(rank)
        elif rank in elsewhere:
            busy.append(rank)
    return WaitsFor(tuple(absent), tuple(busy), (*unknown, *group.maybe))


def _held_on_channel(rank: int, stand: Stand, timeline: Timeline) -> WaitsFor:
    assert stand.index is not None  # checked by the caller
    channel = timeline.channels[stand.index]
    peer, track = (channel.destination, channel.received)
    if rank == channel.destination:
        peer, track = (channel.source, channel.sent)
    if peer not in timeline.traces or peer in timeline.blind:
        return WaitsFor(unknown=(peer,))
    if track is None and timeline.traces[peer].is_partial:
        return WaitsFor(unknown=(peer,))  # its dump may omit messages that are done
    if track is None or not _has_issued(track, stand.seq, counted=channel.counted):
        return WaitsFor(absent=(peer,))
    if track.active_seq is None or (channel.counted and track.active_seq > stand.seq):
        return WaitsFor()  # it has done its part
    here = [s for s in timeline.stands[peer] if (s.group, s.channel) == (stand.group, stand.channel)]
    behind = channel.counted and track.active_seq < stand.seq
    return WaitsFor(together=(peer,)) if here and not behind else WaitsFor(busy=(peer,))


def _has_issued(track: Track, number: int, *, counted: bool) -> bool:
    return track.last_seq >= number if counted else track.active_seq is not None


_Path = dict[int, Iterator[int]]
"""The current path of the search: each node with its remaining successors. A node >= 0 is a rank; a negative node is a slot
in which ranks wait, so that any number of ranks waiting for any number of others needs only one node in between."""


def find_cycle(waits: Waits) -> tuple[int, ...]:
    """Ranks that wait for each other in a ring, each for the next; empty if there is no ring. A depth-first search.

    The edges lead from a rank to the slots that it blocks, and from a slot to the ranks that wait in it. Each node is
    visited once.
    """
    holds_up: dict[int, list[int]] = {}
    for number, waiting in enumerate(waits.waiting, 1):
        for rank in sorted(waiting.held.on):
            if rank in waits:
                holds_up.setdefault(rank, []).append(-number)
    seen: set[int] = set()
    for start in _starts(waits):
        ring = [node for node in _ring_from(start, holds_up, waits, seen) if node >= 0]
        if ring:
            ring.reverse()  # the search goes from the blocking to the blocked rank
            first = ring.index(min(ring))
            return (*ring[first:], *ring[:first])
    return ()


def _starts(waits: Waits) -> Iterator[int]:
    """Every node, in an order that does not depend on the order of files."""
    numbers = {waiting.ranks[0]: number for number, waiting in enumerate(waits.waiting, 1)}
    for rank in sorted(waits):
        yield rank
        if rank in numbers:
            yield -numbers[rank]
            yield from sorted(other for other in waits.waiting[numbers[rank] - 1].held.on if other in waits)


def _ring_from(start: int, holds_up: dict[int, list[int]], waits: Waits, seen: set[int]) -> Sequence[int]:
    """The first ring that is found from this node; empty if there is none."""
    path: _Path = {}
    node: int | None = start
    while node is not None:
        if node in path:
            nodes = list(path)
            return nodes[nodes.index(node) :]
        if node not in seen:
            seen.add(node)
            path[node] = iter(waits.waiting[-node - 1].ranks if node < 0 else holds_up.get(node, ()))
        node = _next_node(path)
    return ()


def _next_node(path: _Path) -> int | None:
    """Backtracks to the deepest node with an unvisited successor, and returns that successor."""
    while path:
        last = next(reversed(path))
        successor = next(path[last], None)
        if successor is not None:
            return successor
        del path[last]
    return None
