"""Ranks at the same position in parallel groups, such as one stage of many pipelines, run the same program: replicas.

The two ends of a channel do different things, so a vote between them is impossible. But each end has replicas: if a rank
does not do what all its replicas do, that rank is wrong, not its peer.
"""

from collections import Counter
from collections.abc import Container, Iterable
from functools import cached_property
from itertools import islice, takewhile

from msgspec import Struct
from msgspec.structs import replace

from forkpoint.diverge.cohorts import build_divergence, first_pending
from forkpoint.diverge.slots import sequence
from forkpoint.diverge.waits import Waits
from forkpoint.model.incident import Divergence, PartingKind, Shift
from forkpoint.model.timeline import GroupTimeline, Position, Timeline
from forkpoint.model.world import ProcessGroup

MAX_REPLICAS = 16
"""At most this many are compared: more would not change the answer."""
MIN_REPLICAS = 2
"""With a single replica, either of the two may be the odd one."""
COMMON = 16
"""Calls that a rank and its replica must have in common before they diverge."""
MAX_OFFSET = 32
"""By how many entries the numbering of two replicas may differ: a rank may have made a few more calls at the start."""
MAX_MORE = 8
"""Entries that a rank may have skipped or added: a batch of messages."""
WINDOW = 8
"""Calls before a slot that must be equal in parallel groups, so that the slot is the same place in the program."""
PROOF = 2
"""Calls that must match again after the skipped or added ones."""


class Leaving(Struct, frozen=True):
    """How a rank deviated from its replicas."""

    rank: int
    channel: tuple[int, int] | None
    """The message's channel, as global ranks; None: it is not a message."""
    by: int | None
    """How many fewer calls it issued; negative: more. 0: as many, but another message or another order. None: it does
    something else entirely.
    """
    at: int | None = None
    """The rank's first entry that is not that of its replicas."""


class _Row(Struct, frozen=True):
    """An entry of the recorder, comparable between replicas."""

    group: str
    call: int
    stack: int


class _Program(Struct, frozen=True):
    """The last calls of a rank, over all its groups."""

    rows: list[_Row]
    first: int
    """The record_id of the first row."""

    def since(self, number: int) -> list[_Row]:
        return self.rows[number - self.first :]


class _Parted(Struct, frozen=True):
    """A rank's calls aligned with those of a replica. Entries are numbered as on the rank itself."""

    at: int | None
    """The first entry that differs; None: all are equal."""
    end: int
    """Both dumps hold the entries before this one."""
    mine: list[_Row]
    theirs: list[_Row]
    """Both from the first difference on."""


class Replicas:
    """Finds and compares the replicas of any rank of a job."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def find_leaving(self, rank: int, group: ProcessGroup) -> Leaving | None:
        """How the rank deviated. None: it does what its replicas do, too few can be compared, or they do not agree."""
        beside = self._beside(rank, group)
        at = min((p.at for p in beside if p.at is not None), default=None)
        if at is None:
            return None
        voters = [p for p in beside if p.end > at]
        if len(voters) < MIN_REPLICAS or any(p.at != at for p in voters):
            return None
        longest = max(voters, key=lambda p: len(p.theirs))
        agree = all(p.theirs == longest.theirs[: len(p.theirs)] for p in voters)
        found = _read(rank, group, longest, self._timeline) or (Leaving(rank, None, None) if agree else None)
        return replace(found, at=at) if found else None

    def find_left(self, ranks: Iterable[int]) -> Leaving | None:
        """The one rank of these that deviated from its replicas, if it is the only one and all its groups agree on how."""
        found = {
            leaving for rank in ranks for group in self._groups(rank) if (leaving := self.find_leaving(rank, group))
        }
        return found.pop() if len(found) == 1 else None

    def find_mates(self, left: Leaving, ranks: Iterable[int]) -> tuple[int, ...]:
        """The rank itself, and those of `ranks` that deviated in the same way. Only members of its small groups are compared:
        ranks that take a branch together belong to one replica of the model, like a tensor-parallel pair.
        """
        small = [group.ranks for group in self._groups(left.rank) if len(group.ranks) <= MAX_REPLICAS]
        asked = set(ranks) & {rank for members in small for rank in members}
        mates = (r for r in asked if any((m := self.find_leaving(r, g)) and m.by == left.by for g in self._groups(r)))
        return tuple(sorted({left.rank, *mates}))

    def do_the_same(self, rank: int, entry: int) -> bool:
        """All replicas whose dumps hold this entry did the same as the rank, up to and including it."""
        beside = [p for group in self._groups(rank) for p in self._beside(rank, group) if p.end > entry]
        return len(beside) >= MIN_REPLICAS and all(p.at is None or p.at > entry for p in beside)

    def find_odd(self, sides: tuple[tuple[int, ...], ...], group: ProcessGroup, seq: int) -> tuple[int, ...]:
        """The members that did in this slot what no parallel group did. Only if all other members did what at least two
        parallel groups did, in this slot and the ones before it.
        """
        own = {rank: self._window(group, rank, seq) for side in sides for rank in side}
        beside = [windows for g in self._siblings(group) if (windows := self._windows(g, seq))]
        usual = {rank for rank, window in own.items() if sum(window in windows for windows in beside) >= MIN_REPLICAS}
        done_there = {window[-1] for windows in beside for window in windows}
        odd = tuple(sorted(rank for rank, window in own.items() if window and window[-1] not in done_there))
        return odd if usual and len(usual) + len(odd) == len(own) else ()

    def are_alike(self, rank: int, group: ProcessGroup, seq: int) -> bool:
        """At least two parallel groups made the same call in this slot, after the same calls before it."""
        window = self._window(group, rank, seq)
        beside = (self._windows(sibling, seq) for sibling in self._siblings(group))
        return bool(window) and sum(window in windows for windows in beside) >= MIN_REPLICAS

    def owe_message(self, rank: int, group: ProcessGroup, channel: tuple[int, int]) -> bool:
        """After the rank's last call, all its replicas continued with a message on this channel."""
        beside = self._beside(rank, group)
        further = [p for p in beside if p.theirs and not p.mine]
        owed = [channel in _next_channels(p.theirs, group, self._timeline) for p in further]
        return all(p.at is None for p in beside) and len(owed) >= MIN_REPLICAS and all(owed)

    def owe_collective(self, rank: int) -> bool:
        """After the rank's last call, all its replicas, of which there are enough, continued with a collective."""
        beside = [p for group in self._groups(rank) for p in self._beside(rank, group)]
        further = [p for p in beside if p.theirs and not p.mine]
        agree = all(p.at is None for p in beside) and len(further) >= MIN_REPLICAS
        return agree and not any(_is_message(p.theirs[0], self._timeline) for p in further)

    def are_past(self, rank: int, position: Position, peers: Container[int]) -> bool:
        """Most of its replicas at these peers are past the batch of messages in which the rank waits: replicas number batches
        alike.
        """
        replicas = self._beside_peers(rank, position, peers)
        passed = [r for r in replicas if self._batch(r, position) > position.op.batch]
        return 2 * len(passed) > len(replicas)

    def _beside_peers(self, rank: int, position: Position, peers: Container[int]) -> list[int]:
        """Replicas whose counterpart of the rank's peer is one of `peers`."""
        assert position.channel is not None  # checked by the caller
        (peer,) = (end for end in position.channel if end != rank)
        members = position.group.ranks
        place, other = members.index(rank), members.index(peer)
        beside = (g.ranks for g in self._kinds.get(_kind(position.group), ()) if g.ranks[other] in peers)
        return [ranks[place] for ranks in beside if ranks[place] in self._timeline.positions]

    def _beside(self, rank: int, group: ProcessGroup) -> list[_Parted]:
        own = _program(rank, self._timeline)
        others = (_program(r, self._timeline) for r in self._of(rank, group))
        return [parted for other in others if (parted := _lay_beside(own, other))]

    def _batch(self, rank: int, position: Position) -> int:
        """The batch of messages in which a rank waits; one later than the position's if it waits in none."""
        positions = self._timeline.positions[rank]
        pending = [p.op.batch for p in positions if p.channel and p.group.desc == position.group.desc]
        return min(pending, default=position.op.batch + 1)

    def _siblings(self, group: ProcessGroup) -> list[ProcessGroup]:
        """Parallel groups, the nearest first: neighbours in a mesh most likely run the same part of the program."""
        beside = sorted(self._kinds.get(_kind(group), ()), key=lambda g: abs(g.ranks[0] - group.ranks[0]))
        return list(islice((g for g in beside if g.is_parallel_to(group)), MAX_REPLICAS))

    def _windows(self, group: ProcessGroup, seq: int) -> set[tuple[int, ...]]:
        """The distinct sequences of calls that members of the group made up to this slot."""
        return {window for rank in group.ranks if (window := self._window(group, rank, seq))}

    def _window(self, group: ProcessGroup, rank: int, seq: int) -> tuple[int, ...]:
        """The last calls of the rank up to this slot; empty if its dump does not hold all of them."""
        track = self._by_group[group].track(rank)
        if track is None or seq > track.last_seq:
            return ()
        held = sequence(track, self._timeline.tables)
        at = seq - held.first
        calls = held.calls[max(at - WINDOW, 0) : at + 1]
        return tuple(calls.tolist()) if at >= WINDOW and held.match[at - WINDOW : at + 1].all() else ()

    @cached_property
    def _by_group(self) -> dict[ProcessGroup, GroupTimeline]:
        return {timeline.group: timeline for timeline in self._timeline.groups}

    def _groups(self, rank: int) -> list[ProcessGroup]:
        """Its groups that have parallel groups."""
        own = [(g.desc, g.members) for g in self._timeline.traces[rank].groups if g.members]
        kinds = [(self._kinds.get((desc, len(members)), ()), members) for desc, members in own]
        return [group for beside, members in kinds if len(beside) > 1 for group in beside if group.ranks == members]

    def _of(self, rank: int, group: ProcessGroup) -> list[int]:
        place = group.ranks.index(rank)
        beside = (g for g in self._kinds.get(_kind(group), ()) if g.is_parallel_to(group))
        return list(islice((r for g in beside if (r := g.ranks[place]) in self._timeline.positions), MAX_REPLICAS))

    @cached_property
    def _kinds(self) -> dict[tuple[str, int], list[ProcessGroup]]:
        found: dict[tuple[str, int], list[ProcessGroup]] = {}
        for timeline in self._timeline.groups:
            if timeline.group.declared:
                found.setdefault(_kind(timeline.group), []).append(timeline.group)
        return found


def _kind(group: ProcessGroup) -> tuple[str, int]:
    """Groups of the same description and size may be parallel."""
    return group.desc, len(group.ranks)


def _next_channels(rows: list[_Row], group: ProcessGroup, timeline: Timeline) -> list[tuple[int, int]]:
    """The channels of the leading messages in `rows`, mapped to this group's ranks."""
    messages = takewhile(lambda row: _peers(row, group, timeline), rows)
    return [_channel(row, group, timeline) for row in messages]


def _program(rank: int, timeline: Timeline) -> _Program:
    trace = timeline.traces[rank]
    names = [group.desc for group in trace.groups]
    columns = (trace.recent_groups.tolist(), trace.recent_matches.tolist(), trace.recent_stacks.tolist())
    rows = [_Row(names[group], call, stack) for group, call, stack in zip(*columns, strict=True)]
    return _Program(rows, int(trace.recent_records[0]) if rows else 0)


def _lay_beside(own: _Program, other: _Program) -> _Parted | None:
    """The two programs aligned; None: no offset makes their recorded calls match."""
    for offset in sorted(range(-MAX_OFFSET, MAX_OFFSET + 1), key=abs):
        start = max(own.first, other.first - offset)
        mine, theirs = own.since(start), other.since(start + offset)
        length = min(len(mine), len(theirs))
        alike = next((n for n in range(length) if mine[n] != theirs[n]), length)
        if alike >= COMMON:
            at = start + alike if alike < length else None
            return _Parted(at, start + length, mine[alike:], theirs[alike:])
    return None


def _read(rank: int, group: ProcessGroup, parted: _Parted, timeline: Timeline) -> Leaving | None:
    """What the rank did instead: skipped calls, issued extra ones, sent another message, or used another order."""
    mine, theirs = parted.mine, parted.theirs
    if _is_other_message(mine[0], theirs[0], group, timeline):
        return Leaving(rank, _channel(mine[0], group, timeline), 0)
    for more in range(1, MAX_MORE + 1):
        if _fits(mine, theirs[more:]):
            return _counted(rank, theirs[:more], 1, group, timeline)
        if _fits(mine[more:], theirs):
            return _counted(rank, mine[:more], -1, group, timeline)
    return Leaving(rank, None, 0) if _is_reordered(mine, theirs) else None


def _is_reordered(mine: list[_Row], theirs: list[_Row]) -> bool:
    """The same calls in another order, and equal again after them."""
    for count in range(2, MAX_MORE + 1):
        if len(mine) >= count <= len(theirs) and Counter(mine[:count]) == Counter(theirs[:count]):
            return all(row == other for row, other in zip(mine[count:], theirs[count:], strict=False))
    return False


def _fits(ahead: list[_Row], behind: list[_Row]) -> bool:
    length = min(len(ahead), len(behind))
    return length >= PROOF and ahead[:length] == behind[:length]


def _counted(rank: int, rows: list[_Row], sign: int, group: ProcessGroup, timeline: Timeline) -> Leaving | None:
    messages = [row for row in rows if _peers(row, group, timeline)]
    if messages:
        return Leaving(rank, _channel(messages[0], group, timeline), sign * len(messages))
    return None if _is_message(rows[0], timeline) else Leaving(rank, None, sign * len(rows))


def _is_other_message(mine: _Row, theirs: _Row, group: ProcessGroup, timeline: Timeline) -> bool:
    """A message between the same two ranks, from the same line; only size or dtype differs."""
    peers = _peers(mine, group, timeline)
    return peers is not None and peers == _peers(theirs, group, timeline) and mine.stack == theirs.stack


def _channel(row: _Row, group: ProcessGroup, timeline: Timeline) -> tuple[int, int]:
    peers = _peers(row, group, timeline)
    assert peers is not None  # checked by the caller
    return group.ranks[peers[0]], group.ranks[peers[1]]


def _is_message(row: _Row, timeline: Timeline) -> bool:
    """A message, or the entry that closes a batch of messages."""
    return any(s.peers or s.is_marker for s in timeline.tables.signatures.get(row.call, ()))


def _peers(row: _Row, group: ProcessGroup, timeline: Timeline) -> tuple[int, int] | None:
    """(source, destination) as group ranks; None: not a message in this kind of group."""
    called = timeline.tables.signatures.get(row.call, ())
    peers = called[0].peers if called and row.group == group.desc else None
    return peers if peers and max(peers) < len(group.ranks) else None


_MOST_UNSEEN = 64
"""Ranks without a dump whose partners are compared with their replicas."""


def left_replicas(hang: Divergence, waits: Waits, timeline: Timeline) -> Divergence | None:
    """The one end of a hanging channel that did not do what its replicas did; None if there are several."""
    held = [waits[r].position for r in hang.cycle] if hang.cycle else _at_channel(hang, timeline)
    ends = {(rank, p.group) for p in held if p.channel for rank in p.channel if rank in timeline.positions}
    return _left_at(ends, timeline)


def left_unseen(hang: Divergence, waits: Waits, timeline: Timeline) -> Divergence | None:
    """The hang ends at ranks whose position no dump shows. They may wait for a message that was skipped: by the one rank with
    which one of them exchanges messages and that did not do what its replicas did; None if there are several.
    """
    if hang.how is not PartingKind.ABSENCE or hang.channel or hang.sides[1:]:
        return None
    ends = [w for w in waits.waiting if not w.held.on]
    others = dict.fromkeys(rank for w in ends for rank in w.held.unknown if rank not in hang.unknown)
    for unseen in (hang.unknown, tuple(others)[:_MOST_UNSEEN]):
        channels = timeline.channels.of_ranks(unseen)
        partners = {(r, c.group) for c in channels for r in (c.source, c.destination) if r in timeline.positions}
        found = _left_at(partners, timeline)
        if found is not None and not set(found.channel or ()).isdisjoint(unseen):
            return found
    return None


def _left_at(ends: Iterable[tuple[int, ProcessGroup]], timeline: Timeline) -> Divergence | None:
    """Ends of channels, each with the channel's group."""
    replicas = Replicas(timeline)
    found = [leaving for rank, group in sorted(ends) if (leaving := replicas.find_leaving(rank, group))]
    if len(found) != 1 or found[0].channel is None:
        return None
    leaving, ends_of_channel = found[0], found[0].channel
    group = next(group for rank, group in ends if rank == leaving.rank)
    channel = timeline.of_channel(group, ends_of_channel)
    number = first_pending(channel)
    numbered = channel.counted or not leaving.by
    return build_divergence(
        PartingKind.MESSAGE,
        channel,
        number,
        timeline,
        sides=((channel.source,), (channel.destination,)),
        hang=number,
        odd=(leaving.rank,),
        shift=Shift((leaving.rank,), leaving.by, (number or 0) if numbered else 0) if leaving.by else None,
        numbered=numbered,
    )


def _at_channel(hang: Divergence, timeline: Timeline) -> list[Position]:
    ends = hang.channel or ()
    return [
        p for r in ends for p in timeline.positions.get(r, ()) if (p.group, p.channel) == (hang.group, hang.channel)
    ]
