"""One rank's trace as bytes: kept in memory for up to 100,000 ranks, sent between nodes, written by every decoder.

    head, keys of thread names, groups (each: head, own part, volumes), channels (each: head, own part)

A record holds keys into the shared tables, and what differs by rank. The own part of a track is the `OpTimes` of the
ops in its shape, its `Pause`, and the creation times of its recent ops. These layouts are the file format of summaries
(docs/summaries.md): the compiled decoder writes the same bytes.
"""

import os
from array import array
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from msgspec import Struct

from forkpoint.model.layout import U32, U64, Byte, Count, Key, Layout, Number

FROM_START, HAS_STACKS, TIMED, PARTIAL, GUESSED_WORLD, COUNTED = 1, 2, 4, 8, 16, 32
"""Bits of `Head.flags`."""
MAX_THREADS = 254
"""Thread names that a record can hold; trainers have a handful. Names beyond that are dropped."""
IN_MEMORY = 8 << 20
"""Bytes of records that a store keeps in memory: a few thousand ranks."""
_LARGE = 64 << 10


class Head(NamedTuple):
    schema: Key
    comm_lib: Key
    script: Key
    cut: Key
    world: Key
    first_ns: Number
    last_ns: Number
    entries: Count
    groups: Count
    channels: Count
    recents: Count
    flags: Byte
    threads: Byte
    first_recent: Number
    recent: Key


class GroupHead(NamedTuple):
    name: Key
    desc: Key
    members: Key
    shape: Key
    last_enqueued: Number
    """NOTHING if it is not known. The same holds for `last_completed`."""
    last_completed: Number
    own: Count
    """Bytes of the own part that follows this head; `volumes` bytes come after it."""
    volumes: Count


class ChannelHead(NamedTuple):
    group: Count
    """Index into the record's groups."""
    source: Number
    destination: Number
    shape: Key
    own: Count


class OpTimes(NamedTuple):
    record_id: Number
    created_ns: Number
    since_previous_ns: Number
    completed_ns: Number
    thread: Byte


class Pause(NamedTuple):
    seq: Number
    ns: Number


HEAD, GROUP, CHANNEL, OP, PAUSE = Layout(Head), Layout(GroupHead), Layout(ChannelHead), Layout(OpTimes), Layout(Pause)


class TraceRecord(Struct, frozen=True):
    rank: int
    file: str
    data: bytes


class RecordParts(NamedTuple):
    """Groups and channels of a record, each with the offset of its own part."""

    groups: list[tuple[int, GroupHead]]
    channels: list[tuple[int, ChannelHead]]
    end: int


def parts_of(data: bytes) -> RecordParts:
    head = HEAD.read(data)
    at = HEAD.size + U64.size * head.threads
    groups: list[tuple[int, GroupHead]] = []
    for _ in range(head.groups):
        group = GROUP.read(data, at)
        groups.append((at + GROUP.size, group))
        at += GROUP.size + group.own + group.volumes
    channels: list[tuple[int, ChannelHead]] = []
    for _ in range(head.channels):
        channel = CHANNEL.read(data, at)
        channels.append((at + CHANNEL.size, channel))
        at += CHANNEL.size + channel.own
    return RecordParts(groups, channels, at)


class RecordStore:
    """Append-only store of records. A large job's records go to a temporary file that only this process sees.

    Ranks and heads, which the stages need for every rank, stay in memory.
    """

    def __init__(self) -> None:
        self.ranks = array("q")
        self.heads: list[bytes] = []
        self._ends = array("Q")
        self._file: BinaryIO | None = None
        self._in_file = 0
        self._in_memory = bytearray()
        self._limit = IN_MEMORY
        self._large: dict[int, TraceRecord] = {}
        """Records with hundreds of groups: each group reads the record, and a copy for each would be quadratic."""

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, record: TraceRecord) -> None:
        name = record.file.encode("utf-8", "surrogatepass")
        self._in_memory += U32.pack(len(name)) + name + record.data
        self._ends.append(self._in_file + len(self._in_memory))
        self.ranks.append(record.rank)
        self.heads.append(record.data[: HEAD.size])
        if len(record.data) > _LARGE:
            self._large[len(self.ranks) - 1] = record
        if len(self._in_memory) > self._limit:
            self._move_to_file()

    def __len__(self) -> int:
        return len(self.ranks)

    def __getitem__(self, at: int) -> TraceRecord:
        if at in self._large:
            return self._large[at]
        begin, end = self._ends[at - 1] if at else 0, self._ends[at]
        if self._file is None or begin >= self._in_file:
            raw = bytes(self._in_memory[begin - self._in_file : end - self._in_file])
        else:
            raw = os.pread(self._file.fileno(), end - begin, begin)
        (size,) = U32.unpack_from(raw)
        name = raw[U32.size : U32.size + size].decode("utf-8", "surrogatepass")
        return TraceRecord(self.ranks[at], name, raw[U32.size + size :])

    def __iter__(self) -> Iterator[TraceRecord]:
        return (self[at] for at in range(len(self)))

    def _move_to_file(self) -> None:
        try:
            if self._file is None:
                import tempfile  # noqa: PLC0415 - most runs need none

                self._file = tempfile.TemporaryFile(prefix="forkpoint-")  # noqa: SIM115 - lives as long as the store
            self._file.write(self._in_memory)
            self._file.flush()
        except OSError:  # no space or no temporary directory: the records stay in memory
            self._limit = 1 << 62
            return
        self._in_file += len(self._in_memory)
        self._in_memory = bytearray()
