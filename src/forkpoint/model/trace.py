"""What one rank's dump holds: views of its record and of the shared tables. Values are unpacked on demand."""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from forkpoint.model.entries import RecentCalls, TrackShape, no_recent_calls
from forkpoint.model.layout import NOTHING, U64, Reader
from forkpoint.model.op import Ints, Op, Tokens
from forkpoint.model.records import (
    COUNTED,
    FROM_START,
    GUESSED_WORLD,
    HAS_STACKS,
    HEAD,
    OP,
    PARTIAL,
    PAUSE,
    TIMED,
    GroupHead,
    Head,
    RecordParts,
    TraceRecord,
    parts_of,
)
from forkpoint.model.tables import SharedTables

RECENT = 32
"""Ops per group whose creation times are kept: enough to see the pace before a hang."""
RECENT_MESSAGES = 8
"""The same per channel; fewer, since a rank may have many channels."""
RECENT_CALLS = 256
"""Calls per rank, over all its groups, whose order is kept: several training iterations."""


class Track:
    """An ordered sequence of ops of one rank: its collectives in a group, or its messages on a channel."""

    __slots__ = ("_at", "_trace", "shape")

    def __init__(self, trace: "RankTrace", shape: TrackShape, at: int) -> None:
        """`at`: offset of its own part in the record."""
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
        """The ring buffer still holds the first op; otherwise what came before `first_seq` is unknown."""
        return self.shape.from_start

    @property
    def blocks(self) -> tuple[int, ...]:
        """Keys into Tables.blocks, ascending."""
        return self.shape.blocks

    @property
    def last_done(self) -> Op | None:
        return None if self.shape.last_done is None else self._op(self.shape.last_done)

    @property
    def first_active(self) -> Op | None:
        """The earliest op after the last one that is done."""
        return None if self.shape.first_active is None else self._op(self.shape.first_active)

    @property
    def active_seq(self) -> int | None:
        """The seq of `first_active`, without building the op."""
        return op.seq if (op := self.shape.active_op) else None

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
        """When an op was created, if that was kept."""
        for index, op in enumerate(self.shape.ops):
            if op.seq == seq:
                return OP.read(self._trace.data, self._at + OP.size * index).created_ns
        at = int(np.searchsorted(self.recent_seqs, seq))
        found = at < len(self.recent_seqs) and self.recent_seqs[at] == seq
        return int(self.recent_created_ns[at]) if found else None

    @property
    def longest_pause_seq(self) -> int:
        """The op before which this rank paused longest, over the whole dump."""
        return PAUSE.read(self._trace.data, self._after_ops).seq

    @property
    def longest_pause_ns(self) -> int:
        return PAUSE.read(self._trace.data, self._after_ops).ns

    @property
    def _after_ops(self) -> int:
        return self._at + OP.size * len(self.shape.ops)

    def _op(self, index: int) -> Op:
        shape, own = self.shape.ops[index], OP.read(self._trace.data, self._at + OP.size * index)
        return Op(
            rank=self._trace.rank,
            record_id=own.record_id,
            seq=shape.seq,
            batch=shape.batch,
            signatures=shape.signatures,
            state=shape.state,
            retired=shape.retired,
            created_ns=own.created_ns,
            since_previous_ns=_if_any(own.since_previous_ns),
            completed_ns=own.completed_ns,
            timeout_ms=shape.timeout_ms,
            stack=shape.stack,
            thread=self._trace.thread(own.thread),
        )


class Volumes(Struct, frozen=True):
    """Elements sent and received in all_to_all, whose sizes may differ by rank but must balance over the group."""

    seqs: Ints
    sent: Ints
    received: Ints


class GroupTrace:
    """One group as one rank saw it."""

    __slots__ = ("_at", "_head", "_trace")

    def __init__(self, trace: "RankTrace", head: GroupHead, at: int) -> None:
        """`at`: offset of its own part in the record."""
        self._trace = trace
        self._head = head
        self._at = at

    @property
    def key(self) -> tuple[int, int]:
        """Keys of its name and members: the same on all ranks, and cheap to compare."""
        return self._head.name, self._head.members

    @property
    def name(self) -> str:
        return self._trace.tables.text(self._head.name)

    @property
    def desc(self) -> str:
        return self._trace.tables.text(self._head.desc)

    @property
    def members(self) -> tuple[int, ...] | None:
        """None: the dump does not say."""
        return self._trace.tables.members(self._head.members) if self._head.members else None

    @property
    def collectives(self) -> Track | None:
        key = self._head.shape
        return Track(self._trace, self._trace.tables.shape(key), self._at) if key else None

    @property
    def volumes(self) -> Volumes | None:
        if not self._head.volumes:
            return None
        reader = Reader(self._trace.data, self._at + self._head.own)
        return Volumes(reader.ints(), reader.ints(), reader.ints())

    @property
    def last_enqueued(self) -> int | None:
        """From pg_status; None if that does not say, or if the rank has P2P in the group: both share this counter."""
        return _if_any(self._head.last_enqueued)

    @property
    def last_completed(self) -> int | None:
        """Like `last_enqueued`."""
        return _if_any(self._head.last_completed)


class ChannelTrace(Struct, frozen=True):
    """One end of a channel: the messages this rank sent to, or received from, one peer in one group."""

    group: GroupTrace
    source: int
    destination: int
    """Global ranks."""
    messages: Track


class RankTrace:
    """What one rank's dump holds."""

    __slots__ = ("_parts", "_record", "_take", "head", "rank", "tables")

    def __init__(self, rank: int, head: Head, take: Callable[[], TraceRecord], tables: SharedTables) -> None:
        """`take` loads the record, when more than the head is needed."""
        self.rank = rank
        self.head = head
        self.tables = tables
        self._take = take
        self._record: TraceRecord | None = None
        self._parts: RecordParts | None = None

    @property
    def record(self) -> TraceRecord:
        if self._record is None:
            self._record = self._take()
        return self._record

    @property
    def data(self) -> bytes:
        return self.record.data

    @property
    def file(self) -> str:
        return self.record.file

    @property
    def schema(self) -> str:
        return self.tables.text(self.head.schema)

    @property
    def comm_lib(self) -> str:
        """`nccl`, `gloo`, ... according to the entries; "" without entries."""
        return self.tables.text(self.head.comm_lib)

    @property
    def entries(self) -> int:
        return self.head.entries

    @property
    def script(self) -> str | None:
        """The file of the outermost frame: the script that was started. The same on all ranks of a job."""
        return self.tables.text(self.head.script) if self.head.script else None

    @property
    def cut(self) -> str | None:
        """Why the entries end early; None for a whole dump."""
        return self.tables.text(self.head.cut) if self.head.cut else None

    @property
    def world(self) -> tuple[int, ...] | None:
        """Members of the default group, if the dump states them."""
        return self.tables.members(self.head.world) if self.head.world else None

    @property
    def world_is_guess(self) -> bool:
        """`world` is the group that was created last, which may be another one (gloo)."""
        return bool(self.head.flags & GUESSED_WORLD)

    @property
    def first_ns(self) -> int:
        """The entries cover the time from `first_ns` to `last_ns`."""
        return self.head.first_ns

    @property
    def last_ns(self) -> int:
        return self.head.last_ns

    @property
    def from_start(self) -> bool:
        """The ring buffer still holds the rank's very first op."""
        return bool(self.head.flags & FROM_START)

    @property
    def has_stacks(self) -> bool:
        return bool(self.head.flags & HAS_STACKS)

    @property
    def timed(self) -> bool:
        """Start events were recorded, so `scheduled` means "not started"."""
        return bool(self.head.flags & TIMED)

    @property
    def is_partial(self) -> bool:
        """Ops that are done may be missing (TORCH_INCLUDE_ONLY_ACTIVE, the debug server), or all ops (the recorder was off):
        an op that the dump does not hold may have been issued and done.
        """
        return bool(self.head.flags & PARTIAL)

    @property
    def has_counters(self) -> bool:
        """It has `pg_status`, which is kept only while the recorder is on."""
        return bool(self.head.flags & COUNTED)

    @property
    def groups(self) -> Sequence[GroupTrace]:
        return [GroupTrace(self, head, at) for at, head in self._found().groups] if self.head.groups else []

    @property
    def channels(self) -> Sequence[ChannelTrace]:
        if not self.head.channels:
            return []
        groups, shape = self.groups, self.tables.shape
        return [
            ChannelTrace(groups[head.group], head.source, head.destination, Track(self, shape(head.shape), at))
            for at, head in self._found().channels
        ]

    @property
    def recent_records(self) -> Ints:
        """record_id of the last calls over all groups and channels, oldest first, without gaps."""
        return np.arange(self.head.first_recent, self.head.first_recent + self.head.recents, dtype=np.int64)

    @property
    def recent_groups(self) -> Ints:
        """For each recent call, its index into `groups`."""
        return self._recent.groups

    @property
    def recent_matches(self) -> Tokens:
        """What each recent call was, without its group: comparable between ranks."""
        return self._recent.matches

    @property
    def recent_ops(self) -> Tokens:
        """What each recent call was, and in which group. Comparable only within this rank."""
        return self._recent.ops

    @property
    def recent_stacks(self) -> Tokens:
        """Where each recent call was made."""
        return self._recent.stacks

    @property
    def recent_calls(self) -> Tokens:
        """What each recent call was, in which group, and where it was made."""
        return self._recent.ops ^ self._recent.stacks

    @property
    def _recent(self) -> RecentCalls:
        return self.tables.recent(self.head.recent) if self.head.recent else no_recent_calls()

    def thread(self, index: int) -> str:
        return self.tables.text(U64.unpack_from(self.data, HEAD.size + U64.size * index)[0])

    def _found(self) -> RecordParts:
        if self._parts is None:
            self._parts = parts_of(self.data)
        return self._parts


def _if_any(number: int) -> int | None:
    return None if number == NOTHING else number
