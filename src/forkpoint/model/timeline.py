"""The order of ops in every group and channel, aligned over ranks."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import overload

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from forkpoint.model.entries import Tables
from forkpoint.model.layout import NOTHING
from forkpoint.model.op import Ints, Op
from forkpoint.model.rows import NOT_HELD, GroupTraces, Rows
from forkpoint.model.trace import Track
from forkpoint.model.traces import ByRank, Traces, TracesByRank
from forkpoint.model.world import ProcessGroup

_NO_ROW = -1


class Gap(StrEnum):
    """Why a rank has no op in a slot."""

    NOT_REACHED = "not-reached"
    """Its dump covers this point, and it has not issued this op."""
    EVICTED = "evicted"
    """Its dump no longer shows whether it was issued: older than its ring buffer, or omitted because it was done."""
    NO_DUMP = "no-dump"
    """There is no dump, or the dump was cut or taken too early to show this."""


class GroupTimeline(Struct, frozen=True):
    """One group's collectives over its members."""

    group: ProcessGroup
    traces: GroupTraces
    """Without members that have no dump."""
    blind_after: Mapping[int, int]
    """Ranks whose dump ends early -> the last seq that it covers."""
    cut: frozenset[int]
    """Ranks of the whole job whose dump was cut off."""
    kinds: tuple[tuple[int, int], ...]
    """(kind of track, a member with it). Tracks of one kind, in any group, differ only in times."""
    is_uneven: bool
    """Every member's dump says what it sent and received in all_to_all, and some did not send as much as they received."""
    has_messages: bool = False
    """Ranks also send and receive in this group: its counters then count both, so they do not number collectives."""
    maybe: tuple[int, ...] = ()
    """Ranks that may be members, too: no dump declares the members, and these ranks' dumps do not exclude it."""

    def track(self, rank: int) -> Track | None:
        trace = self.traces.get(rank)
        return trace.collectives if trace else None

    def is_evicted(self, rank: int) -> bool:
        """Its dump holds no op of this group, although it may have issued some."""
        return rank in self.traces and self.track(rank) is None and not self.traces.is_from_start(rank)

    def counter(self, rank: int) -> int | None:
        """The last collective that the rank enqueued, according to `pg_status`; None if that does not say."""
        trace = None if self.has_messages else self.traces.get(rank)
        return trace.last_enqueued if trace else None

    def pending_by_counters(self, rank: int) -> tuple[int, int] | None:
        """The last collective that the rank finished and the last that it enqueued, where they differ and its dump has no entry of this group."""
        trace = self.traces.get(rank)
        if trace is None or self.has_messages or trace.collectives or not trace.last_enqueued:
            return None
        done = trace.last_completed or 0
        return (done, trace.last_enqueued) if done < trace.last_enqueued else None

    def gap(self, rank: int, seq: int) -> Gap | None:
        """Why the rank has no op `seq`; None: it has issued it."""
        if rank not in self.traces:
            return Gap.NO_DUMP
        if seq > self.blind_after.get(rank, seq):
            # The counters come before the entries in the file, so a cut dump still says how far its rank got. Not in a
            # group's first call: while the communicator is being created, that call is not counted.
            counted = self.counter(rank) if rank in self.cut else None
            return Gap.NOT_REACHED if counted is not None and 0 < counted < seq else Gap.NO_DUMP
        track = self.track(rank)
        if track is not None and seq <= track.last_seq:
            return Gap.EVICTED if seq < track.first_seq else None
        counted = self.counter(rank)
        if counted is not None and (track is None or self.traces.is_partial(rank)):
            return Gap.NOT_REACHED if counted < seq else Gap.EVICTED
        if track is None:
            return Gap.NOT_REACHED if self.traces.is_from_start(rank) else Gap.EVICTED
        return Gap.NO_DUMP if self.traces.is_partial(rank) else Gap.NOT_REACHED


class Channel(Struct, frozen=True):
    """Messages from one rank to another in one group, as each end recorded them."""

    group: ProcessGroup
    source: int
    destination: int
    sent: Track | None
    received: Track | None
    """None: that rank has no dump, or its dump has no messages of this channel."""

    def end(self, rank: int) -> Track | None:
        """What this rank recorded; None if it is neither source nor destination."""
        return {self.source: self.sent, self.destination: self.received}.get(rank)

    @property
    def counted(self) -> bool:
        """Both ends hold their first message, so that the n-th sent is the n-th received."""
        return bool(self.sent and self.received and self.sent.from_start and self.received.from_start)


class Channels(Sequence[Channel]):
    """The channels of a job, sorted by group and ends. Only the rows of the two ends are stored; `Channel` objects are
    created on demand, since there may be hundreds of thousands.
    """

    def __init__(self, rows: Rows, traces: Traces, groups: dict[int, ProcessGroup]) -> None:
        self.groups = groups
        """By index into `Rows.names`."""
        self._rows = rows
        self._traces = traces
        table, ranks = rows.channels, traces.ranks[rows.channels.trace]
        place = np.zeros(len(rows.names), np.int64)
        place[sorted(groups, key=lambda number: groups[number])] = np.arange(len(groups))
        keys = (place[table.group], table.source, table.destination)
        order = np.lexsort(keys[::-1])
        new = np.ones(len(order), np.bool_)
        new[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
        first = order[new]
        self.of_row = np.empty(len(order), np.int64)
        """For each row of `Rows.channels`, the index of its channel."""
        self.of_row[order] = np.cumsum(new) - 1
        self._group = table.group[first]
        self._source, self._destination = table.source[first], table.destination[first]
        self._sent = self._end(ranks == table.source)
        self._received = self._end(ranks == table.destination)

    def _end(self, is_end: NDArray[np.bool_]) -> Ints:
        """Per channel: the row of this end."""
        rows = np.full(len(self._group), _NO_ROW)
        rows[self.of_row[is_end]] = np.flatnonzero(is_end)
        return rows

    def find(self, group: ProcessGroup, ends: tuple[int, int]) -> Channel:
        found = np.flatnonzero((self._source == ends[0]) & (self._destination == ends[1]))
        return next(self[index] for index in found.tolist() if self.groups[int(self._group[index])] == group)

    def of_ranks(self, ranks: Iterable[int]) -> list[Channel]:
        """Those with one of these ranks as an end."""
        among = list(ranks)
        found = np.flatnonzero(np.isin(self._source, among) | np.isin(self._destination, among))
        return [self[index] for index in found.tolist()]

    def by_kind(self) -> Iterator[tuple[Channel, Sequence[int]]]:
        """Channels grouped by the kinds of their two tracks: the first channel of each, and the indexes of all."""
        kinds = np.append(self._rows.channels.kind, np.int32(_NO_ROW))  # _NO_ROW = -1 picks this last item
        pairs = np.stack([kinds[self._sent], kinds[self._received]], axis=1)
        _, which = np.unique(pairs, axis=0, return_inverse=True)
        order = np.argsort(which.ravel(), kind="stable")
        for alike in np.split(order, np.flatnonzero(np.diff(which.ravel()[order])) + 1):
            if alike.size:
                yield self[int(alike[0])], alike.tolist()

    def ends(self, index: int) -> tuple[int, int]:
        return int(self._source[index]), int(self._destination[index])

    def __len__(self) -> int:
        return len(self._group)

    @overload
    def __getitem__(self, index: int) -> Channel: ...
    @overload
    def __getitem__(self, index: slice) -> list[Channel]: ...
    def __getitem__(self, index: int | slice) -> Channel | list[Channel]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        at = range(len(self))[index]
        sent, received = int(self._sent[at]), int(self._received[at])
        return Channel(self.groups[int(self._group[at])], *self.ends(at), self._track(sent), self._track(received))

    def _track(self, row: int) -> Track | None:
        if row == _NO_ROW:
            return None
        table = self._rows.channels
        trace = self._traces[int(table.trace[row])]
        return Track(trace, self._rows.kinds[int(table.kind[row])], int(table.place[row]))


class Position(Struct, frozen=True):
    """A pending op of a rank: where the rank is."""

    op: Op
    group: ProcessGroup
    channel: tuple[int, int] | None


class Stand(Struct, frozen=True):
    """The part of a `Position` that is needed to find who waits for whom."""

    group: ProcessGroup
    channel: tuple[int, int] | None
    index: int | None
    """Of the channel, in `Timeline.channels`."""
    seq: int
    batch: int
    record_id: int
    created_ns: int


class Stands(ByRank[tuple[Stand, ...]]):
    """Per rank with a complete dump and a pending op: its earliest pending op, or all messages of that op's batch.

    Stored as one row index per rank: the row of the group or channel with the earliest pending op.
    """

    def __init__(
        self,
        rows: Rows,
        traces: Traces,
        groups: tuple[GroupTimeline, ...],
        channels: Channels,
        blind: frozenset[int],
    ) -> None:
        self._rows = rows
        self._groups = groups
        self._channels = channels
        pending = [shape.active_op for shape in rows.kinds]
        self._seqs = [op.seq if op else 0 for op in pending]
        self._batches = [op.batch if op else 0 for op in pending]
        self._begins = np.searchsorted(rows.channels.trace, np.arange(len(traces) + 1))

        whole = ~np.isin(traces.ranks, list(blind))
        trace = np.concatenate([rows.groups.trace, rows.channels.trace])
        active = np.concatenate([rows.groups.active, rows.channels.active])
        counts = np.concatenate([_of_members(rows, groups), np.ones(len(rows.channels), np.bool_)])
        counts &= (active != NOTHING) & whole[trace]
        held = np.flatnonzero(counts)
        order = held[np.lexsort((active[held], trace[held]))]
        standing, first = np.unique(trace[order], return_index=True)
        self._first = order[first]
        """One row index per rank with a pending op: into `Rows.groups`, or beyond its end into `Rows.channels`."""
        super().__init__(array("q", traces.ranks[standing].tobytes()))
        self._traces = standing
        self._elsewhere = counts[: len(rows.groups)]
        self._elsewhere[self._first[self._first < len(rows.groups)]] = False

    def held_elsewhere(self, group: GroupTimeline) -> frozenset[int]:
        """Members with a pending op in the group that have an earlier pending op in another group or channel."""
        return frozenset(
            rank
            for rank, row in zip(group.traces, group.traces.rows, strict=True)
            if row != NOT_HELD and self._elsewhere[row]
        )

    def value(self, at: int) -> tuple[Stand, ...]:
        row = int(self._first[at]) - len(self._rows.groups)
        if row < 0:
            return (self._in_group(row + len(self._rows.groups)),)
        return self._batch(row, int(self._traces[at]))

    def _in_group(self, row: int) -> Stand:
        table = self._rows.groups
        kind, group = int(table.kind[row]), self._groups[int(table.group[row])].group
        own = int(table.active[row]), int(table.active_ns[row])
        return Stand(group, None, None, self._seqs[kind], self._batches[kind], *own)

    def _batch(self, first: int, trace: int) -> tuple[Stand, ...]:
        """All messages that the rank issued in the same batch as the first."""
        table = self._rows.channels
        mine = range(int(self._begins[trace]), int(self._begins[trace + 1]))
        batch = self._batches[int(table.kind[first])]
        together = [
            row
            for row in mine
            if table.active[row] != NOTHING
            and table.group[row] == table.group[first]
            and self._batches[int(table.kind[row])] == batch
        ]
        return tuple(sorted(map(self._on_channel, together), key=lambda stand: stand.record_id))

    def _on_channel(self, row: int) -> Stand:
        table = self._rows.channels
        kind, group = int(table.kind[row]), self._channels.groups[int(table.group[row])]
        ends = int(table.source[row]), int(table.destination[row])
        own = int(table.active[row]), int(table.active_ns[row])
        return Stand(group, ends, int(self._channels.of_row[row]), self._seqs[kind], self._batches[kind], *own)


def _of_members(rows: Rows, groups: tuple[GroupTimeline, ...]) -> NDArray[np.bool_]:
    """Which rows of `Rows.groups` belong to a rank in its group's timeline."""
    known = np.zeros(len(rows.groups), np.bool_)
    for group in groups:
        held: Ints = np.asarray(group.traces.rows)
        known[held[held != NOT_HELD]] = True
    return known


class Positions(Mapping[int, tuple[Position, ...]]):
    """Per rank with a complete dump: its first active op in each group and channel, in order of issue. Lazy."""

    def __init__(
        self,
        traces: TracesByRank,
        blind: frozenset[int],
        rows: Rows,
        groups: tuple[GroupTimeline, ...],
        channels: Channels,
    ) -> None:
        self._traces = traces
        self._blind = blind
        self._numbers = rows.numbers
        self._groups = groups
        self._channels = channels

    def __getitem__(self, rank: int) -> tuple[Position, ...]:
        if rank in self._blind:
            raise KeyError(rank)
        trace = self._traces[rank]
        found: list[Position] = []
        for group in trace.groups:
            timeline, track = self._groups[self._numbers[group.key]], group.collectives
            if track and rank in timeline.traces and (op := track.first_active):
                found.append(Position(op, timeline.group, None))
        for end in trace.channels:
            if op := end.messages.first_active:
                group = self._channels.groups[self._numbers[end.group.key]]
                found.append(Position(op, group, (end.source, end.destination)))
        return tuple(sorted(found, key=lambda position: position.op.record_id))

    def __contains__(self, rank: object) -> bool:
        return rank in self._traces and rank not in self._blind

    def __iter__(self) -> Iterator[int]:
        return (rank for rank in self._traces if rank not in self._blind)

    def __len__(self) -> int:
        return len(self._traces) - len(self._blind & self._traces.keys())


UNBOUNDED = 1_000_000_000


class Timeline(Struct, frozen=True):
    world: tuple[int, ...]
    unseen: int
    """How many more ranks there may be: 0 if a dump or log states the world size; 1 if every rank up to the highest has a
    dump, a log or a stack, since the last rank may have left nothing; UNBOUNDED otherwise."""
    traces: TracesByRank
    groups: tuple[GroupTimeline, ...]
    channels: Channels
    positions: Positions
    stands: Stands
    blind: frozenset[int]
    """Ranks whose dump ends early: what they did is known, where they are now is not."""
    idle: frozenset[int]
    """Ranks in `blind` whose counters say that everything they enqueued is done, messages included."""
    entering: frozenset[int]
    """Ranks whose pending op reads `completed` in the dump; we infer that it is not (OpState.ENTERING, ABORTED)."""
    tables: Tables
    facts: dict[str, object] = field(default_factory=dict[str, object])
    """Cached results of functions decorated with `fact`, by the function's name."""

    def of_group(self, group: ProcessGroup) -> GroupTimeline:
        return next(g for g in self.groups if g.group == group)

    def of_channel(self, group: ProcessGroup, ends: tuple[int, int]) -> Channel:
        return self.channels.find(group, ends)

    @property
    def world_known(self) -> bool:
        return self.unseen < UNBOUNDED
