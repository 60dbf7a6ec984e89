"""One dump as columns: a row of numbers per entry, and a table for each kind of value that repeats."""

from array import array
from typing import Any, Final, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from forkpoint.errors import HostileInput
from forkpoint.model.op import Frame, Ints, Signature, Stack

NO_FRAMES = -1
"""In `stack`: the entry has no `frames` key at all (an empty list of frames is a stack of its own)."""


class GroupConfig(Struct, frozen=True):
    """A group as the dump's `pg_config` declares it."""

    name: str
    desc: str
    ranks: tuple[int, ...] | None
    """None where the dump does not say (gloo writes an empty list)."""


class GroupStatus(Struct, frozen=True):
    """A group's counters in `pg_status`. -1 = none; collectives and P2P share them."""

    last_enqueued: int
    last_started: int
    last_completed: int


class DumpHeader(Struct, frozen=True):
    schema: str
    """`version` as written ("2.10"); "" for torch 2.2's bare list."""
    comm_lib_version: str | None
    groups: tuple[GroupConfig, ...]
    status: dict[int, GroupStatus]
    """By pg_id, which is not the group's name."""
    rank: int | None
    """Only dumps that a tool has re-written state their rank."""
    cut: str | None
    """Why the entries end early (the file was cut); None for a whole file."""
    unnamed: tuple[int, ...] | None = None
    """Members of the group created last, if groups have no names (gloo registers them before they have one)."""
    behind: int = 0
    """Number of bytes after the end of the dump."""


class DumpColumns(Struct, frozen=True):
    """A row per entry, oldest first. Tables hold each distinct value once; rows hold indexes into them."""

    header: DumpHeader
    groups: tuple[tuple[str, str], ...]
    """Distinct (name, desc) of the entries."""
    signatures: tuple[Signature, ...]
    stacks: tuple[Stack, ...]
    threads: tuple[str, ...]

    group: Ints
    signature: Ints
    stack: Ints
    """Index into stacks, or NO_FRAMES."""
    thread: Ints
    pg_id: Ints
    record_id: Ints
    collective_seq: Ints
    p2p_seq: Ints
    op_id: Ints
    is_p2p: NDArray[np.bool_]
    state: NDArray[np.uint8]
    """0 scheduled, 1 started, 2 completed."""
    retired: NDArray[np.bool_]
    created_ns: Ints
    started_ns: Ints
    """0 = not known; the same holds for completed_ns and timeout_ms."""
    completed_ns: Ints
    timeout_ms: Ints

    def members(self) -> list[tuple[int, ...] | None]:
        """Global ranks of each group in group-rank order; None where the dump does not say."""
        by_name: dict[str, GroupConfig] = {}
        exact: dict[tuple[str, str], GroupConfig] = {}
        for declared in self.header.groups:
            by_name.setdefault(declared.name, declared)
            exact.setdefault((declared.name, declared.desc), declared)
        found = (exact.get(named) or by_name.get(named[0]) for named in self.groups)
        return [group.ranks if group else None for group in found]

    def rows_by_group(self) -> list[Ints]:
        """The row indexes of each group, in order."""
        order = np.argsort(self.group, kind="stable")
        ends = np.cumsum(np.bincount(self.group, minlength=len(self.groups)))
        return np.split(order, ends[:-1]) if self.groups else []


ROW: Final = (
    "record_id", "collective_seq", "p2p_seq", "op_id", "created_ns", "started_ns", "completed_ns",
    "stack", "group", "signature", "thread", "pg_id", "timeout_ms", "is_p2p", "state", "retired",
)  # fmt: skip
"""The columns of `DumpColumns`, in the order of the numbers in a row."""
_NARROW: Final = {"is_p2p": np.bool_, "state": np.uint8, "retired": np.bool_}
Row = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int]
_CHUNK: Final = 1024

# Limits how often values are visited, by the size of the file: lists can be shared, so a small file can describe a huge
# dump (or an endless one).
_VISITS_PER_BYTE: Final = 4
_SPARE_VISITS: Final = 1_000_000
_SPARE_TEXT: Final = 32 << 20
"""Bytes of text that a dump's stacks, signatures and groups may hold in addition to the file's own size. Frames and names
are written once and then referenced, so a small file could repeat a long text a million times. An honest dump with 2,000
different stacks has 18 MB. The compiled reader uses the same limit.
"""

T = TypeVar("T")


class Table:
    """Rows, and tables of repeated values. Keys contain text or bytes, never only numbers: a file could choose numbers whose
    hashes collide.
    """

    def __init__(self, file_size: int) -> None:
        self.visits_left = _VISITS_PER_BYTE * file_size + _SPARE_VISITS
        self.text_left = file_size + _SPARE_TEXT
        self._text_sizes: dict[str, int] = {}
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
        """Call this before iterating over any list from the file."""
        self.visits_left -= visits
        if self.visits_left < 0:
            raise HostileInput("expands to far more data than its size allows; no recorder writes that, leave it out")

    def spend_text(self, *texts: str) -> None:
        """Call this once for every distinct value that holds texts."""
        self.text_left -= sum(map(self._text_size, texts))
        if self.text_left < 0:
            raise HostileInput("expands to far more text than its size allows; no recorder writes that, leave it out")

    def _text_size(self, text: str) -> int:
        size = self._text_sizes.get(text)
        if size is None:
            size = self._text_sizes[text] = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        return size

    @property
    def groups(self) -> int:
        return len(self._groups)

    def group(self, name: str, desc: str) -> int:
        index = self._groups.get((name, desc))
        if index is None:
            self.spend_text(name, desc)
            index = self._groups[name, desc] = len(self._groups)
        return index

    def thread(self, name: str) -> int:
        return self._threads.setdefault(name, len(self._threads))

    def add_signature(self, signature: Signature) -> int:
        """The caller makes sure that it is new."""
        self._signatures.append(signature)
        return len(self._signatures) - 1

    def frame(self, name: str, filename: str, line: int) -> int:
        index = self._frames.setdefault((name, filename, line), len(self._frame_list))
        if index == len(self._frame_list):
            self._frame_list.append(Frame(name, filename, line))
        return index

    def stack(self, frames: list[int]) -> int:
        """The index of the stack with these frames, given by their indexes."""
        index = self._stacks.setdefault(array("q", frames).tobytes(), len(self._stack_list))
        if index == len(self._stack_list):
            stack = tuple(self._frame_list[i] for i in frames)
            self.spend_text(*(text for frame in stack for text in (frame.name, frame.filename)))
            self._stack_list.append(stack)
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
        column: dict[str, Any] = {name: np.ascontiguousarray(rows[:, place]) for place, name in enumerate(ROW)}
        column["group"], groups = only_used(column["group"], tuple(self._groups))
        column["signature"], signatures = only_used(column["signature"], tuple(self._signatures))
        column["stack"], stacks = only_used(column["stack"], tuple(self._stack_list))
        column["thread"], threads = only_used(column["thread"], tuple(self._threads))
        narrow = {name: column[name].astype(kind) for name, kind in _NARROW.items()}
        return DumpColumns(header, groups, signatures, stacks, threads, **(column | narrow))


def only_used(column: Ints, values: tuple[T, ...]) -> tuple[Ints, tuple[T, ...]]:
    """Drops values that no row refers to: an entry may be rejected after some of its values went into the tables."""
    used = np.flatnonzero(np.bincount(column[column != NO_FRAMES], minlength=len(values)))
    if used.size == len(values):
        return column, values
    new_index = np.full(len(values) + 1, NO_FRAMES, dtype=np.int64)  # NO_FRAMES picks the last place: itself
    new_index[used] = np.arange(used.size)
    return new_index[column], tuple(values[i] for i in used)
