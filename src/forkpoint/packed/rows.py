"""Every group and channel of every rank as columns: what the stages ask of all ranks is asked of these.

Tracks of one kind have the same shape, so ranks that did the same are looked at once, however many they are.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forkpoint.model.trace import Ints
from forkpoint.packed.entries import TrackShape
from forkpoint.packed.layout import I64, NOTHING, U64, skip_ints, struct_of
from forkpoint.packed.records import CHANNEL, GROUP, HEAD, OWN_OP
from forkpoint.packed.tables import SharedTables
from forkpoint.packed.traces import PackedTraces

NO_KIND = -1
NO_VOLUMES, EVEN, UNEVEN = range(3)
"""What a rank tells of its all_to_all: nothing; that each sent as much as it received; that some did not."""
_TRACK = [
    ("trace", "<u4"),
    ("group", "<u4"),
    ("place", "<u4"),
    ("kind", "<i4"),
    ("active", "<i8"),
    ("active_ns", "<i8"),
]
_GROUP = [*_TRACK, ("done_ns", "<i8"), ("volumes", "u1")]
_CHANNEL = [*_TRACK, ("source", "<i8"), ("destination", "<i8")]
_GROUP_ROW, _CHANNEL_ROW = struct_of(_GROUP), struct_of(_CHANNEL)
_ISSUED = struct.Struct("<qq")
"""What an op of a record begins with: its record_id, and when it was created."""
_COMPLETED_AT = 24
"""Where an op of a record tells it: behind its number, its creation and what came before it."""


@dataclass(frozen=True, slots=True)
class GroupName:
    name: str
    desc: str
    """The smallest that a member gives it."""
    members: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Tracks:
    """One row per track."""

    trace: NDArray[np.uint32]
    """Its index."""
    group: NDArray[np.uint32]
    """Number into `Rows.names`."""
    place: NDArray[np.uint32]
    """In the record: of the group, or of a channel's own part."""
    kind: NDArray[np.int32]
    """Number into `Rows.kinds`; NO_KIND without ops."""
    active: Ints
    """record_id of the first active op, or NOTHING."""
    active_ns: Ints
    """When it was created."""

    def __len__(self) -> int:
        return len(self.trace)


@dataclass(frozen=True, slots=True, eq=False)
class GroupTracks(Tracks):
    done_ns: Ints
    """When the last done op was completed, or 0."""
    volumes: NDArray[np.uint8]
    """NO_VOLUMES, EVEN or UNEVEN."""


@dataclass(frozen=True, slots=True, eq=False)
class ChannelTracks(Tracks):
    source: Ints
    destination: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    names: tuple[GroupName, ...]
    numbers: dict[tuple[int, int], int]
    """Of groups, by `PackedGroup.key`."""
    kinds: tuple[TrackShape, ...]
    groups: GroupTracks
    """Group after group, and in each by trace."""
    channels: ChannelTracks
    """Trace after trace."""


def read_rows(traces: PackedTraces) -> Rows:
    builder = _Builder(traces.tables)
    for index, trace in enumerate(traces):
        builder.add(index, trace.data)
    return builder.rows()


def _columns(rows: NDArray[np.void], order: Ints | slice = slice(None)) -> dict[str, NDArray[Any]]:
    return {name: np.ascontiguousarray(rows[name][order]) for name in rows.dtype.names or ()}


def _by_group(rows: NDArray[np.void]) -> Ints:
    """Group after group. A trace that has one twice, under two descriptions, tells what the later row says."""
    order = np.argsort(rows["group"], kind="stable")
    group, trace = rows["group"][order], rows["trace"][order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = (group[1:] != group[:-1]) | (trace[1:] != trace[:-1])
    return order[last]


def _volumes(data: bytes, at: int) -> int:
    """Packed alike they are alike: most need not be unpacked."""
    _, sent = skip_ints(data, at)
    _, received = skip_ints(data, sent)
    _, end = skip_ints(data, received)
    return EVEN if data[sent:received] == data[received:end] else UNEVEN


class _Builder:
    def __init__(self, tables: SharedTables) -> None:
        self._tables = tables
        self._numbers: dict[tuple[int, int], int] = {}
        self._descs: list[int] = []
        self._kind_of: dict[int, int] = {0: NO_KIND}
        self._kinds: list[TrackShape] = []
        self._groups = bytearray()
        self._channels = bytearray()

    def rows(self) -> Rows:
        text, members = self._tables.text, self._tables.members
        named = zip(self._numbers, self._descs, strict=True)
        groups, channels = np.frombuffer(self._groups, _GROUP), np.frombuffer(self._channels, _CHANNEL)
        return Rows(
            names=tuple(GroupName(text(n), text(desc), members(m) if m else None) for (n, m), desc in named),
            numbers=self._numbers,
            kinds=tuple(self._kinds),
            channels=ChannelTracks(**_columns(channels)),
            groups=GroupTracks(**_columns(groups, _by_group(groups))),
        )

    def add(self, trace: int, data: bytes) -> None:
        head = HEAD.unpack_from(data)
        at = HEAD.size + U64.size * head[12]
        groups: list[int] = []
        for _ in range(head[8]):
            name, desc, members, shape, _, _, own, volumes = GROUP.unpack_from(data, at)
            groups.append(self._number(name, members, desc))
            kind, active, active_ns = self._track(shape, data, at + GROUP.size)
            done_ns = self._done_ns(kind, data, at + GROUP.size)
            told = _volumes(data, at + GROUP.size + own) if volumes else NO_VOLUMES
            self._groups += _GROUP_ROW.pack(trace, groups[-1], at, kind, active, active_ns, done_ns, told)
            at += GROUP.size + own + volumes
        for _ in range(head[9]):
            index, source, destination, shape, own = CHANNEL.unpack_from(data, at)
            at += CHANNEL.size
            track = self._track(shape, data, at)
            self._channels += _CHANNEL_ROW.pack(trace, groups[index], at, *track, source, destination)
            at += own

    def _number(self, name: int, members: int, desc: int) -> int:
        number = self._numbers.setdefault((name, members), len(self._descs))
        if number == len(self._descs):
            self._descs.append(desc)
        elif self._descs[number] != desc:
            self._descs[number] = min(desc, self._descs[number], key=self._tables.text)
        return number

    def _track(self, key: int, data: bytes, at: int) -> tuple[int, int, int]:
        """Its columns from `kind` on."""
        kind = self._kind_of.get(key)
        if kind is None:
            kind = self._kind_of[key] = len(self._kinds)
            self._kinds.append(self._tables.shape(key))
        if kind == NO_KIND or (active := self._kinds[kind].first_active) is None:
            return kind, NOTHING, 0
        return kind, *_ISSUED.unpack_from(data, at + OWN_OP.size * active)

    def _done_ns(self, kind: int, data: bytes, at: int) -> int:
        if kind == NO_KIND or (done := self._kinds[kind].last_done) is None:
            return 0
        return I64.unpack_from(data, at + OWN_OP.size * done + _COMPLETED_AT)[0]
