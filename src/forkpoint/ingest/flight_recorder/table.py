"""The growing columns of one dump: a row of numbers per entry, and a table for each kind of value that repeats."""

from array import array
from typing import Final, TypeVar

import numpy as np

from forkpoint.errors import HostileInput
from forkpoint.ingest.flight_recorder.columns import NO_FRAMES, DumpColumns, DumpHeader, Ints
from forkpoint.model.op import Frame, Signature, Stack

ROW: Final = (
    "record_id", "collective_seq", "p2p_seq", "op_id", "created_ns", "started_ns", "completed_ns",
    "stack", "group", "signature", "thread", "pg_id", "timeout_ms", "is_p2p", "state", "retired",
)  # fmt: skip
"""Order of the numbers in a row."""
Row = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int]
_CHUNK: Final = 1024

# Visiting a value may cost at most so much more than its file has bytes: lists can be shared, so that a small
# file describes a huge dump (or an endless one).
_VISITS_PER_BYTE: Final = 16
_SPARE_VISITS: Final = 1_000_000

T = TypeVar("T")


class Table:
    """Values are found again by text or bytes, never by numbers alone: a file could choose those to collide."""

    def __init__(self, file_size: int) -> None:
        self.visits_left = _VISITS_PER_BYTE * file_size + _SPARE_VISITS
        self._chunks: list[Ints] = []
        self._rows: list[Row] = []
        self._groups: dict[tuple[str, str], int] = {}
        self._threads: dict[str, int] = {}
        self._signatures: list[Signature] = []
        self._frames: dict[tuple[str, str, int], int] = {}
        self._frame_list: list[Frame] = []
        self._stacks: dict[bytes, int] = {}
        self._stack_list: list[Stack] = []

    def spend(self, visits: int) -> None:
        """Every list that is gone through is paid for here first."""
        self.visits_left -= visits
        if self.visits_left < 0:
            raise HostileInput("unfolds to far more data than its size allows; no recorder writes that, leave it out")

    def group(self, name: str, desc: str) -> int:
        return self._groups.setdefault((name, desc), len(self._groups))

    def thread(self, name: str) -> int:
        return self._threads.setdefault(name, len(self._threads))

    def add_signature(self, signature: Signature) -> int:
        """The caller knows by other means that it is new."""
        self._signatures.append(signature)
        return len(self._signatures) - 1

    def frame(self, name: str, filename: str, line: int) -> int:
        index = self._frames.setdefault((name, filename, line), len(self._frame_list))
        if index == len(self._frame_list):
            self._frame_list.append(Frame(name, filename, line))
        return index

    def stack(self, frames: list[int]) -> int:
        """The stack made of these frames, by their indexes."""
        index = self._stacks.setdefault(array("q", frames).tobytes(), len(self._stack_list))
        if index == len(self._stack_list):
            self._stack_list.append(tuple(self._frame_list[i] for i in frames))
        return index

    def add_row(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) == _CHUNK:
            self._pack_rows()

    def add_rows(self, rows: Ints) -> None:
        """Many rows at once, as an array of shape (n, len(ROW))."""
        self._pack_rows()
        self._chunks.append(rows)

    def _pack_rows(self) -> None:
        if self._rows:
            self._chunks.append(np.array(self._rows, dtype=np.int64))
            self._rows = []

    def columns(self, header: DumpHeader) -> DumpColumns:
        self._pack_rows()
        rows = np.concatenate([np.empty((0, len(ROW)), dtype=np.int64), *self._chunks])
        column = {name: np.ascontiguousarray(rows[:, i]) for i, name in enumerate(ROW)}
        group, groups = only_used(column["group"], tuple(self._groups))
        signature, signatures = only_used(column["signature"], tuple(self._signatures))
        stack, stacks = only_used(column["stack"], tuple(self._stack_list))
        thread, threads = only_used(column["thread"], tuple(self._threads))
        return DumpColumns(
            header=header,
            groups=groups,
            signatures=signatures,
            stacks=stacks,
            threads=threads,
            group=group,
            signature=signature,
            stack=stack,
            thread=thread,
            pg_id=column["pg_id"],
            record_id=column["record_id"],
            collective_seq=column["collective_seq"],
            p2p_seq=column["p2p_seq"],
            op_id=column["op_id"],
            is_p2p=column["is_p2p"].astype(np.bool_),
            state=column["state"].astype(np.uint8),
            retired=column["retired"].astype(np.bool_),
            created_ns=column["created_ns"],
            started_ns=column["started_ns"],
            completed_ns=column["completed_ns"],
            timeout_ms=column["timeout_ms"],
        )


def only_used(column: Ints, values: tuple[T, ...]) -> tuple[Ints, tuple[T, ...]]:
    """An entry may be left out after some of its values went into the tables; no row refers to those."""
    used = np.unique(column[column != NO_FRAMES])
    if used.size == len(values):
        return column, values
    new_index = np.full(len(values) + 1, NO_FRAMES, dtype=np.int64)  # NO_FRAMES picks the last place: itself
    new_index[used] = np.arange(used.size)
    return new_index[column], tuple(values[i] for i in used)
