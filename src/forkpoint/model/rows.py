"""Every group and channel of every rank as columns, for questions that the stages ask about all ranks.

Tracks of one kind have the same shape, so any number of ranks that did the same are examined only once.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from forkpoint.model.entries import TrackShape
from forkpoint.model.layout import NO_KEY, NOTHING, Byte, Count, Index, Layout, Number, skip_ints
from forkpoint.model.op import Ints
from forkpoint.model.records import GROUP, OP, GroupHead, parts_of
from forkpoint.model.tables import SharedTables
from forkpoint.model.trace import GroupTrace
from forkpoint.model.traces import ByRank, Traces, TracesByRank

NO_KIND = -1
NOT_HELD = -1
"""Instead of a row index: the rank's dump does not mention the group."""
NO_VOLUMES, EVEN, UNEVEN = range(3)
"""A rank's all_to_all calls: unknown; it always sent as many elements as it received; not always."""


class _GroupRow(NamedTuple):
    trace: Count
    group: Count
    place: Count
    kind: Index
    active: Number
    active_ns: Number
    done_ns: Number
    volumes: Byte


class _ChannelRow(NamedTuple):
    trace: Count
    group: Count
    place: Count
    kind: Index
    active: Number
    active_ns: Number
    source: Number
    destination: Number


_GROUP_ROW, _CHANNEL_ROW = Layout(_GroupRow), Layout(_ChannelRow)


class GroupName(Struct, frozen=True):
    keys: tuple[int, int, int]
    """Keys of name, description and members in the tables."""
    name: str
    desc: str
    """If members' dumps disagree, the first in alphabetical order."""
    members: tuple[int, ...] | None


class Tracks(Struct, frozen=True, eq=False):
    """One row per track."""

    trace: NDArray[np.uint32]
    """Index of the trace."""
    group: NDArray[np.uint32]
    """Index into `Rows.names`."""
    place: NDArray[np.uint32]
    """Offset of its own part in the record."""
    kind: NDArray[np.int32]
    """Index into `Rows.kinds`; NO_KIND if it has no ops."""
    active: Ints
    """record_id of the first active op, or NOTHING."""
    active_ns: Ints
    """When it was created."""

    def __len__(self) -> int:
        return len(self.trace)


class GroupTracks(Tracks, frozen=True, eq=False):
    done_ns: Ints
    """When the last done op was completed, or 0."""
    volumes: NDArray[np.uint8]
    """NO_VOLUMES, EVEN or UNEVEN."""


class ChannelTracks(Tracks, frozen=True, eq=False):
    source: Ints
    destination: Ints


class Rows(Struct, frozen=True, eq=False):
    names: tuple[GroupName, ...]
    numbers: dict[tuple[int, int], int]
    """Indexes into `names`, by `GroupTrace.key`."""
    kinds: tuple[TrackShape, ...]
    groups: GroupTracks
    """Sorted by group, then by trace."""
    channels: ChannelTracks
    """Sorted by trace."""


def read_rows(traces: Traces) -> Rows:
    builder = _Builder(traces.tables)
    for index, trace in enumerate(traces):
        builder.add(index, trace.data)
    return builder.rows()


def _columns(rows: NDArray[np.void], order: Ints | slice = slice(None)) -> dict[str, NDArray[Any]]:
    return {name: np.ascontiguousarray(rows[name][order]) for name in rows.dtype.names or ()}


def _by_group(rows: NDArray[np.void]) -> Ints:
    """Row indexes sorted by group. If a trace has a group twice, under two descriptions, only the later row is kept."""
    order = np.argsort(rows["group"], kind="stable")
    group, trace = rows["group"][order], rows["trace"][order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = (group[1:] != group[:-1]) | (trace[1:] != trace[:-1])
    return order[last]


def _volumes(data: bytes, at: int) -> int:
    """Equal numbers pack to equal bytes, so comparing the bytes is enough."""
    _, sent = skip_ints(data, at)
    _, received = skip_ints(data, sent)
    _, end = skip_ints(data, received)
    return EVEN if data[sent:received] == data[received:end] else UNEVEN


class _Builder:
    def __init__(self, tables: SharedTables) -> None:
        self._tables = tables
        self._numbers: dict[tuple[int, int], int] = {}
        self._descs: list[int] = []
        self._kind_of: dict[int, int] = {NO_KEY: NO_KIND}
        self._kinds: list[TrackShape] = []
        self._groups = bytearray()
        self._channels = bytearray()

    def rows(self) -> Rows:
        groups = np.frombuffer(self._groups, _GROUP_ROW.dtype)
        channels = np.frombuffer(self._channels, _CHANNEL_ROW.dtype)
        return Rows(
            names=tuple(self._name(*keys) for keys in zip(self._numbers, self._descs, strict=True)),
            numbers=self._numbers,
            kinds=tuple(self._kinds),
            channels=ChannelTracks(**_columns(channels)),
            groups=GroupTracks(**_columns(groups, _by_group(groups))),
        )

    def _name(self, key: tuple[int, int], desc: int) -> GroupName:
        (name, members), text = key, self._tables.text
        ranks = self._tables.members(members) if members else None
        return GroupName((name, desc, members), text(name), text(desc), ranks)

    def add(self, trace: int, data: bytes) -> None:
        parts = parts_of(data)
        groups: list[int] = []
        for at, head in parts.groups:
            groups.append(self._number(head.name, head.members, head.desc))
            kind, active, active_ns = self._track(head.shape, data, at)
            volumes = _volumes(data, at + head.own) if head.volumes else NO_VOLUMES
            done_ns = self._done_ns(kind, data, at)
            row = _GroupRow(trace, groups[-1], at, kind, active, active_ns, done_ns, volumes)
            self._groups += _GROUP_ROW.pack(row)
        for at, end in parts.channels:
            track = self._track(end.shape, data, at)
            row = _ChannelRow(trace, groups[end.group], at, *track, end.source, end.destination)
            self._channels += _CHANNEL_ROW.pack(row)

    def _number(self, name: int, members: int, desc: int) -> int:
        number = self._numbers.setdefault((name, members), len(self._descs))
        if number == len(self._descs):
            self._descs.append(desc)
        elif self._descs[number] != desc:
            self._descs[number] = min(desc, self._descs[number], key=self._tables.text)
        return number

    def _track(self, key: int, data: bytes, at: int) -> tuple[int, int, int]:
        """Its columns `kind`, `active` and `active_ns`."""
        kind = self._kind_of.get(key)
        if kind is None:
            kind = self._kind_of[key] = len(self._kinds)
            self._kinds.append(self._tables.shape(key))
        if kind == NO_KIND or (active := self._kinds[kind].first_active) is None:
            return kind, NOTHING, 0
        op = OP.read(data, at + OP.size * active)
        return kind, op.record_id, op.created_ns

    def _done_ns(self, kind: int, data: bytes, at: int) -> int:
        if kind == NO_KIND or (done := self._kinds[kind].last_done) is None:
            return 0
        return OP.read(data, at + OP.size * done).completed_ns


class GroupRows:
    """The rows of all groups, and the traces they belong to."""

    def __init__(self, rows: Rows, traces: TracesByRank) -> None:
        self.ranks = array("q", traces.in_order.ranks[rows.groups.trace].tobytes())
        self._begins = np.searchsorted(rows.groups.group, np.arange(len(rows.names) + 1)).tolist()
        self._every_row = range(len(self.ranks))
        self.tracks = rows.groups
        self.traces = traces

    def holders(self, number: int, name: GroupName) -> "GroupTraces":
        """The traces that mention the group, whether their ranks are members or not."""
        return GroupTraces(self, name, self.ranks, self._every_row, self._begins[number], self._begins[number + 1])


class GroupTraces(ByRank[GroupTrace]):
    """One group's trace by rank. If all members hold the group this object is a few numbers, whatever the size of the group
    (up to 100,000).
    """

    __slots__ = ("_name", "_rows", "_table")

    def __init__(
        self, table: GroupRows, name: GroupName, ranks: Sequence[int], rows: Sequence[int], begin: int, end: int
    ) -> None:
        """Covers `ranks[begin:end]` and their `rows`, which may be NOT_HELD."""
        super().__init__(ranks, begin, end)
        self._table = table
        self._name = name
        self._rows = rows

    def among(self, ranks: list[int]) -> "GroupTraces":
        """Restricted or extended to exactly these ranks, whether their dumps mention the group or not."""
        if ranks == list(self):
            return self
        rows = array("q", (NOT_HELD if (at := self.place(rank)) is None else self._rows[at] for rank in ranks))
        return GroupTraces(self._table, self._name, array("q", ranks), rows, 0, len(ranks))

    @property
    def rows(self) -> Sequence[int]:
        """Indexes into `Rows.groups`."""
        return self._rows[self._begin : self._end]

    def is_from_start(self, rank: int) -> bool:
        """The rank's ring buffer still holds its very first op in any group."""
        return self._table.traces[rank].from_start

    def is_partial(self, rank: int) -> bool:
        """The rank's dump may omit ops that are done."""
        return self._table.traces[rank].is_partial

    def completed(self) -> Iterator[tuple[int, int, int]]:
        """Per rank: the rank, the kind of its track, and when its last done op was completed (0: not known)."""
        rows, tracks = np.asarray(self.rows), self._table.tracks
        held = rows != NOT_HELD
        ranks = np.asarray(self._ranks[self._begin : self._end])[held].tolist()
        rows = rows[held]
        return zip(ranks, tracks.kind[rows].tolist(), tracks.done_ns[rows].tolist(), strict=True)

    def value(self, at: int) -> GroupTrace:
        trace, row = self._table.traces[self._ranks[at]], self._rows[at]
        if row == NOT_HELD:
            name, desc, members = self._name.keys
            nothing = GroupHead(name, desc, members, NO_KEY, NOTHING, NOTHING, own=0, volumes=0)
            return GroupTrace(trace, nothing, 0)
        place = int(self._table.tracks.place[row])
        return GroupTrace(trace, GROUP.read(trace.data, place - GROUP.size), place)
