"""Where records are kept: the first in memory, the many of a large job in a temporary file that only this process sees.

What is asked of every rank, such as its rank and the head of its record, stays in memory.
"""

import os
import tempfile
from array import array
from collections.abc import Iterator
from typing import BinaryIO

from forkpoint.packed.layout import U32
from forkpoint.packed.records import HEAD
from forkpoint.packed.trace import PackedRecord

IN_MEMORY = 8 << 20
"""Bytes of records: those of a few thousand ranks."""


class StoredRecord:
    """A record in a store, taken out of it when more than its head is asked for."""

    __slots__ = ("_at", "_store", "_taken", "head", "rank")

    def __init__(self, store: "RecordStore", at: int) -> None:
        self._store = store
        self._at = at
        self._taken: PackedRecord | None = None
        self.rank = store.ranks[at]
        self.head = store.heads[at]

    @property
    def file(self) -> str:
        return self._record.file

    @property
    def data(self) -> bytes:
        return self._record.data

    @property
    def _record(self) -> PackedRecord:
        if self._taken is None:
            self._taken = self._store.take(self._at)
        return self._taken


class RecordStore:
    """Grows while files are read; nothing is taken away."""

    def __init__(self) -> None:
        self.ranks = array("q")
        self.heads: list[bytes] = []
        self._ends = array("Q")
        self._file: BinaryIO | None = None
        self._in_file = 0
        self._in_memory = bytearray()
        self._limit = IN_MEMORY

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, record: PackedRecord) -> None:
        name = record.file.encode("utf-8", "surrogatepass")
        self._in_memory += U32.pack(len(name)) + name + record.data
        self._ends.append(self._in_file + len(self._in_memory))
        self.ranks.append(record.rank)
        self.heads.append(record.data[: HEAD.size])
        if len(self._in_memory) > self._limit:
            self._move_to_file()

    def take(self, at: int) -> PackedRecord:
        begin, end = self._ends[at - 1] if at else 0, self._ends[at]
        if self._file is None or begin >= self._in_file:
            raw = bytes(self._in_memory[begin - self._in_file : end - self._in_file])
        else:
            raw = os.pread(self._file.fileno(), end - begin, begin)
        (size,) = U32.unpack_from(raw)
        name = raw[U32.size : U32.size + size].decode("utf-8", "surrogatepass")
        return PackedRecord(self.ranks[at], name, raw[U32.size + size :])

    def __len__(self) -> int:
        return len(self.ranks)

    def __getitem__(self, at: int) -> StoredRecord:
        return StoredRecord(self, at)

    def __iter__(self) -> Iterator[StoredRecord]:
        return (StoredRecord(self, at) for at in range(len(self)))

    def _move_to_file(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="forkpoint-")  # noqa: SIM115 - lives as long as the store
            self._file.write(self._in_memory)
            self._file.flush()
        except OSError:  # no room, or no folder for it: they stay in memory
            self._limit = 1 << 62
            return
        self._in_file += len(self._in_memory)
        self._in_memory = bytearray()
