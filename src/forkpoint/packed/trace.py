"""Packed traces, read where they lie: nothing is unpacked before it is asked for."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from forkpoint.model.op import Op, OpState
from forkpoint.model.trace import ChannelTrace, Ints, Tokens, Volumes, find_created
from forkpoint.packed.entries import RecentCalls, TrackShape, no_recent_calls
from forkpoint.packed.layout import I64, NOTHING, U32, U64, Reader
from forkpoint.packed.records import (
    CHANNEL,
    COUNTED,
    FROM_START,
    GROUP,
    GUESSED_WORLD,
    HAS_STACKS,
    HEAD,
    OWN_OP,
    PARTIAL,
    PAUSE,
    TIMED,
)
from forkpoint.packed.tables import SharedTables

_KEY, _NUMBER, _COUNT = U64.unpack_from, I64.unpack_from, U32.unpack_from
_LENGTHS = struct.Struct("<2I").unpack_from


@dataclass(frozen=True, slots=True)
class PackedRecord:
    """One rank's trace as bytes."""

    rank: int
    file: str
    data: bytes

    @property
    def head(self) -> bytes:
        return self.data


class Record(Protocol):
    """A packed record, wherever it lies."""

    @property
    def rank(self) -> int: ...
    @property
    def file(self) -> str: ...
    @property
    def head(self) -> bytes:
        """It begins as `data` does, and has at least `records.HEAD`."""
        ...

    @property
    def data(self) -> bytes: ...


class PackedTrack:
    """A `Track` at a place in a record."""

    __slots__ = ("_at", "_trace", "shape")

    def __init__(self, trace: "PackedTrace", shape: TrackShape, at: int) -> None:
        self._trace = trace
        self._at = at
        self.shape = shape

    @property
    def count(self) -> int:
        return self.shape.count

    @property
    def first_seq(self) -> int:
        return self.shape.first_seq

    @property
    def last_seq(self) -> int:
        return self.shape.last_seq

    @property
    def from_start(self) -> bool:
        return self.shape.from_start

    @property
    def blocks(self) -> tuple[int, ...]:
        return self.shape.blocks

    @property
    def last_done(self) -> Op | None:
        return None if self.shape.last_done is None else self._op(self.shape.last_done)

    @property
    def first_active(self) -> Op | None:
        return None if self.shape.first_active is None else self._op(self.shape.first_active)

    @property
    def active_state(self) -> OpState | None:
        return None if self.shape.first_active is None else self.shape.ops[self.shape.first_active].state

    @property
    def active_seq(self) -> int | None:
        return None if self.shape.first_active is None else self.shape.ops[self.shape.first_active].seq

    @property
    def last(self) -> Op:
        return self._op(self.shape.last)

    @property
    def recent_seqs(self) -> Ints:
        return self.shape.recent_seqs

    @property
    def recent_created_ns(self) -> Ints:
        return Reader(self._trace.data, self._after_ops + PAUSE.size).ints()

    def created(self, seq: int) -> int | None:
        for index, op in enumerate(self.shape.ops):  # which need no unpacking
            if op.seq == seq:
                return OWN_OP.unpack_from(self._trace.data, self._at + OWN_OP.size * index)[1]
        return find_created(self, seq)

    @property
    def longest_pause_seq(self) -> int:
        return PAUSE.unpack_from(self._trace.data, self._after_ops)[0]

    @property
    def longest_pause_ns(self) -> int:
        return PAUSE.unpack_from(self._trace.data, self._after_ops)[1]

    @property
    def _after_ops(self) -> int:
        return self._at + OWN_OP.size * len(self.shape.ops)

    def _op(self, index: int) -> Op:
        shape = self.shape.ops[index]
        record_id, created, since, completed, thread = OWN_OP.unpack_from(
            self._trace.data, self._at + OWN_OP.size * index
        )
        return Op(
            rank=self._trace.rank,
            record_id=record_id,
            seq=shape.seq,
            batch=shape.batch,
            signatures=shape.signatures,
            state=shape.state,
            retired=shape.retired,
            created_ns=created,
            since_previous_ns=_if_any(since),
            completed_ns=completed,
            timeout_ms=shape.timeout_ms,
            stack=shape.stack,
            thread=self._trace.thread(thread),
        )


class PackedGroup:
    """A `GroupTrace` at a place in a record."""

    __slots__ = ("_at", "_shape", "_trace")

    def __init__(self, trace: "PackedTrace", at: int, shape: TrackShape | None) -> None:
        self._trace = trace
        self._at = at
        self._shape = shape

    @property
    def name(self) -> str:
        return self._trace.tables.text(_KEY(self._trace.data, self._at)[0])

    @property
    def desc(self) -> str:
        return self._trace.tables.text(_KEY(self._trace.data, self._at + 8)[0])

    @property
    def key(self) -> tuple[int, int]:
        return _KEY(self._trace.data, self._at)[0], _KEY(self._trace.data, self._at + 16)[0]

    @property
    def members(self) -> tuple[int, ...] | None:
        key = _KEY(self._trace.data, self._at + 16)[0]
        return self._trace.tables.members(key) if key else None

    @property
    def collectives(self) -> PackedTrack | None:
        return PackedTrack(self._trace, self._shape, self._at + GROUP.size) if self._shape else None

    @property
    def volumes(self) -> Volumes | None:
        own, volumes = _LENGTHS(self._trace.data, self._at + 48)
        if not volumes:
            return None
        reader = Reader(self._trace.data, self._at + GROUP.size + own)
        return Volumes(reader.ints(), reader.ints(), reader.ints())

    @property
    def last_enqueued(self) -> int | None:
        return _if_any(_NUMBER(self._trace.data, self._at + 32)[0])

    @property
    def last_completed(self) -> int | None:
        return _if_any(_NUMBER(self._trace.data, self._at + 40)[0])


def _if_any(number: int) -> int | None:
    return None if number == NOTHING else number


class PackedTrace:
    """A `RankTrace` in a record. Its numbers stand where `records.HEAD` and `records.GROUP` put them."""

    __slots__ = ("_record", "head", "rank", "tables")

    def __init__(self, record: Record, tables: SharedTables) -> None:
        self._record = record
        self.rank = record.rank
        self.head = record.head
        self.tables = tables

    @property
    def file(self) -> str:
        return self._record.file

    @property
    def data(self) -> bytes:
        return self._record.data

    @property
    def schema(self) -> str:
        return self.tables.text(_KEY(self.head, 0)[0])

    @property
    def comm_lib(self) -> str:
        return self.tables.text(_KEY(self.head, 8)[0])

    @property
    def script(self) -> str | None:
        key = _KEY(self.head, 16)[0]
        return self.tables.text(key) if key else None

    @property
    def cut(self) -> str | None:
        key = _KEY(self.head, 24)[0]
        return self.tables.text(key) if key else None

    @property
    def world_key(self) -> int:
        """Of its world: 0 where its dump does not state it."""
        return _KEY(self.head, 32)[0]

    @property
    def world(self) -> tuple[int, ...] | None:
        key = self.world_key
        return self.tables.members(key) if key else None

    @property
    def world_is_guess(self) -> bool:
        return bool(self.head[72] & GUESSED_WORLD)

    @property
    def first_ns(self) -> int:
        return _NUMBER(self.head, 40)[0]

    @property
    def last_ns(self) -> int:
        return _NUMBER(self.head, 48)[0]

    @property
    def entries(self) -> int:
        return _COUNT(self.head, 56)[0]

    @property
    def from_start(self) -> bool:
        return bool(self.head[72] & FROM_START)

    @property
    def has_stacks(self) -> bool:
        return bool(self.head[72] & HAS_STACKS)

    @property
    def timed(self) -> bool:
        return bool(self.head[72] & TIMED)

    @property
    def is_partial(self) -> bool:
        return bool(self.head[72] & PARTIAL)

    @property
    def has_counters(self) -> bool:
        return bool(self.head[72] & COUNTED)

    @property
    def groups(self) -> Sequence[PackedGroup]:
        return [self._group(at) for at in self._places()[:-1]]

    def _group(self, at: int) -> PackedGroup:
        key = _KEY(self.data, at + 24)[0]
        return PackedGroup(self, at, self.tables.shape(key) if key else None)

    @property
    def channels(self) -> Sequence[ChannelTrace]:
        if not _COUNT(self.data, 64)[0]:
            return ()
        places = self._places()
        return [
            ChannelTrace(
                self._group(places[index]), source, destination, PackedTrack(self, self.tables.shape(shape), at)
            )
            for at, (index, source, destination, shape, _) in self._channel_heads(places[-1])
        ]

    def channel_groups(self) -> list[int]:
        """Index into `groups` of each channel."""
        return [head[0] for _, head in self._channel_heads(self._places()[-1])]

    @property
    def recent_records(self) -> Ints:
        first = _NUMBER(self.data, 74)[0]
        return np.arange(first, first + _COUNT(self.data, 68)[0], dtype=np.int64)

    @property
    def recent_groups(self) -> Ints:
        return self._recent.groups

    @property
    def recent_ops(self) -> Tokens:
        return self._recent.ops

    @property
    def recent_matches(self) -> Tokens:
        return self._recent.matches

    @property
    def recent_stacks(self) -> Tokens:
        return self._recent.stacks

    @property
    def recent_calls(self) -> Tokens:
        return self._recent.ops ^ self._recent.stacks

    @property
    def _recent(self) -> RecentCalls:
        key = _KEY(self.data, 82)[0]
        return self.tables.recent(key) if key else no_recent_calls()

    def thread(self, index: int) -> str:
        return self.tables.text(_KEY(self.data, HEAD.size + U64.size * index)[0])

    def _places(self) -> list[int]:
        """Where each group begins, and where the channels do."""
        places = [HEAD.size + U64.size * self.data[73]]
        for _ in range(_COUNT(self.data, 60)[0]):
            own, volumes = _LENGTHS(self.data, places[-1] + 48)
            places.append(places[-1] + GROUP.size + own + volumes)
        return places

    def _channel_heads(self, at: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Where each channel's own part begins, and what stands before it."""
        for _ in range(_COUNT(self.data, 64)[0]):
            head = CHANNEL.unpack_from(self.data, at)
            at += CHANNEL.size
            yield at, head
            at += head[-1]
