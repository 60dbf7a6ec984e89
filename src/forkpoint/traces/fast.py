"""The fast path: entries with a known layout are read by one regular expression each.

PyTorch writes the keys of every entry in the same order, and writes repeated texts and frames as references to the
memo. Decoding one entry with the machine reveals that order and the references of the keys. From then on a regular
expression matches whole entries, as long as they have the same keys with values of the same kinds. Parts that repeat are
decoded once, by the machine, and then looked up by their raw bytes; counters and times become columns without becoming
Python integers first. The first entry that does not match goes to the machine again.

Every quantifier is possessive, so matching takes time linear in the entry's length, whatever the bytes are.
"""

import re
from itertools import groupby
from operator import attrgetter
from typing import Final

import numpy as np
from msgspec import Struct

from forkpoint.errors import UnreadableInput
from forkpoint.traces.columns import NO_FRAMES, ROW, Ints
from forkpoint.traces.entries import Entry, EntryReader
from forkpoint.traces.pickles import FLAG, INTEGER, REFERENCE, Machine, reference

_REFERENCES: Final = rb"\]\(" + REFERENCE + rb"*+e"
_SIZES: Final = rb"\]\((?:\]\(" + INTEGER + rb"*+e)*+e"

_COUNTERS: Final = {
    "record_id": "record_id",
    "collective_seq_id": "collective_seq",
    "p2p_seq_id": "p2p_seq",
    "op_id": "op_id",
    "time_created_ns": "created_ns",
    "time_discovered_started_ns": "started_ns",
    "time_discovered_completed_ns": "completed_ns",
}
"""Fields that differ in every entry -> their columns."""
_CALL: Final = {
    "pg_id": INTEGER,
    "process_group": REFERENCE + REFERENCE + rb"\x86",
    "thread_name": REFERENCE,
    "thread_id": REFERENCE,
    "profiling_name": REFERENCE,
    "input_sizes": _SIZES,
    "input_dtypes": _REFERENCES,
    "output_sizes": _SIZES,
    "output_dtypes": _REFERENCES,
    "state": REFERENCE,
    "retired": FLAG,
    "timeout_ms": INTEGER,
    "is_p2p": FLAG,
}
"""Fields whose values repeat between entries."""
_SKIPPED: Final[dict[type, bytes]] = {int: INTEGER, bool: FLAG, float: rb"G.{8}"}
"""Patterns for fields that no column needs, by the type of the value. Entries with other types go to the machine."""
_OLD: Final = frozenset({"seq_id", "time_created_us"})
"""Keys of torch 2.2 and 2.3: such files are too rare to optimise for."""

_CALL_PART: Final = "call"

_MAX_LAYOUTS: Final = 8
_MAX_FIELDS: Final = 64
_BATCH: Final = 2048
_WIDTHS: Final = {2: (1, "u1"), 3: (2, "<u2"), 5: (4, "<i4"), 10: (8, "<i8")}
"""Length of an integer with its opcode -> (bytes of the number, dtype). A pickled None has length 1."""


class Layouts:
    """The layouts seen in one file. Only a few are learned: compiling one costs as much as decoding 30 entries."""

    def __init__(self, machine: Machine, reader: EntryReader) -> None:
        self._machine = machine
        self._reader = reader
        self._layouts: dict[tuple[object, ...], _Layout | None] = {}

    def take_like(self, entry: Entry) -> None:
        """Reads entries from the machine's position on, as long as they have the layout of `entry`."""
        keys = tuple(entry)
        if keys not in self._layouts:
            if len(self._layouts) == _MAX_LAYOUTS:
                return
            self._layouts[keys] = _learn(entry, self._machine, self._reader)
        layout = self._layouts[keys]
        if layout is not None:
            layout.take()


def _learn(entry: Entry, machine: Machine, reader: EntryReader) -> "_Layout | None":
    """The layout of an entry; None if it has values that only the machine can decode."""
    if "profiling_name" not in entry or _OLD & entry.keys() or len(entry) > _MAX_FIELDS:
        return None
    places = {text: place for place, text in enumerate(machine.memo) if type(text) is str}
    fields: list[_Field] = []
    for key, value in entry.items():
        field = _field(key, value, places.get(key)) if type(key) is str else None
        if field is None:
            return None
        fields.append(field)
    return _Layout(machine, reader, fields)


class _Field(Struct, frozen=True):
    goes_to: str
    """A column of ROW, or _CALL_PART, or empty."""
    key: bytes
    value: bytes
    """Both as regular expressions."""


def _field(key: str, value: object, place: int | None) -> _Field | None:
    if place is None:
        return None
    fetch = re.escape(reference(place))
    if key in _COUNTERS:
        return _Field(_COUNTERS[key], fetch, INTEGER + rb"|N")
    if key == "frames":
        return _Field("stack", fetch, _REFERENCES)
    if key in _CALL:
        return _Field(_CALL_PART, fetch, _CALL[key])
    skipped = _SKIPPED.get(type(value))
    return _Field("", fetch, skipped) if skipped else None


def _compile(fields: list[_Field]) -> tuple[re.Pattern[bytes], list[str]]:
    """A pattern for a whole entry, and for each of its capture groups where it goes."""
    pattern, captured = rb"\}\(", list[str]()
    for goes_to, run in groupby(fields, key=attrgetter("goes_to")):
        if goes_to == _CALL_PART:
            # Neighbouring fields are captured together, with their keys: fewer pieces to look up.
            pattern += rb"(" + b"".join(field.key + field.value for field in run) + rb")"
        else:
            pattern += b"".join(field.key + (rb"(" if goes_to else rb"(?:") + field.value + rb")" for field in run)
        captured += [goes_to] if goes_to else []
    # Only these opcodes can follow a complete entry; otherwise the machine has to continue with it.
    return re.compile(pattern + rb"u(?=[}e])", re.DOTALL), captured


class _Layout:
    """Reads entries of one layout, and caches what their raw pieces mean."""

    def __init__(self, machine: Machine, reader: EntryReader, fields: list[_Field]) -> None:
        self._machine = machine
        self._reader = reader
        pattern, captured = _compile(fields)
        self._match = pattern.match
        counters = [i for i, goes_to in enumerate(captured) if goes_to in _COUNTERS.values()]
        self._counters = counters
        self._columns = [ROW.index(captured[i]) for i in counters]
        self._call_parts = [i for i, goes_to in enumerate(captured) if goes_to == _CALL_PART]
        self._stack = captured.index("stack") if "stack" in captured else None
        self._calls: dict[bytes, tuple[int, ...]] = {}
        self._stacks: dict[bytes, tuple[int, ...]] = {}

    def take(self) -> None:
        """Reads entries of this layout from the machine's position on."""
        machine, batch = self._machine, _Batch()
        while found := self._match(machine.data, machine.pos):
            pieces = found.groups()
            raw_call = b"".join([pieces[i] for i in self._call_parts])
            raw_stack = b"" if self._stack is None else pieces[self._stack]
            try:
                call = self._calls.get(raw_call) or self._read_call(raw_call)
                stack = self._stacks.get(raw_stack) or self._read_stack(raw_stack)
            except UnreadableInput:
                break  # the machine will report what is wrong, and where
            batch.calls.append(call)
            batch.stacks.append(stack)
            batch.counters += [pieces[i] for i in self._counters]
            machine.pos = found.end()
            if len(batch.calls) == _BATCH:
                self._hand_over(batch)
                batch = _Batch()
        if batch.calls:
            self._hand_over(batch)

    def _read_call(self, raw: bytes) -> tuple[int, ...]:
        before = self._budgets()
        try:
            entry = self._machine.evaluate(b"}(" + raw + b"u")
            assert isinstance(entry, dict)
            call = self._reader.call(entry)
        finally:
            cost = self._restore(before)
        self._calls[raw] = known = (*call, *cost)
        return known

    def _read_stack(self, raw: bytes) -> tuple[int, ...]:
        if not raw:
            return NO_FRAMES, 0, 0
        before = self._budgets()
        try:
            index = self._reader.stack(self._machine.evaluate(raw))
        finally:
            cost = self._restore(before)
        self._stacks[raw] = known = (index, *cost)
        return known

    def _budgets(self) -> tuple[int, int]:
        return self._reader.table.visits_left, self._machine.containers_left

    def _restore(self, before: tuple[int, int]) -> tuple[int, int]:
        """Refunds what was spent since and returns the amounts: each entry is charged later, cached or not."""
        visits, containers = self._budgets()
        self._reader.table.visits_left, self._machine.containers_left = before
        return before[0] - visits, before[1] - containers

    def _hand_over(self, batch: "_Batch") -> None:
        rows = np.zeros((len(batch.calls), len(ROW)), dtype=np.int64)
        calls, stacks = np.array(batch.calls, dtype=np.int64), np.array(batch.stacks, dtype=np.int64)
        rows[:, self._columns] = _integers(batch.counters).reshape(len(rows), -1)
        rows[:, ROW.index("stack")] = stacks[:, 0]
        rows[:, ROW.index("group") :] = calls[:, :-2]
        self._reader.table.spend(int(calls[:, -2].sum() + stacks[:, -2].sum()))
        self._machine.count_containers(int(calls[:, -1].sum() + stacks[:, -1].sum()))
        self._reader.read += len(rows)
        self._reader.table.add_rows(rows)


class _Batch:
    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []
        """The fields of Call, then their cost in visits and containers."""
        self.stacks: list[tuple[int, ...]] = []
        """Index, visits, containers."""
        self.counters: list[bytes] = []


def _integers(raws: list[bytes]) -> Ints:
    """Raw pickled integers (or None: 0) as numbers."""
    lengths = np.fromiter(map(len, raws), dtype=np.int64, count=len(raws))
    ends = np.cumsum(lengths)
    joined = np.frombuffer(b"".join(raws), dtype=np.uint8)
    numbers = np.zeros(len(raws), dtype=np.int64)
    for length, (width, dtype) in _WIDTHS.items():
        which = np.flatnonzero(lengths == length)
        places = ends[which, np.newaxis] + np.arange(-width, 0)
        numbers[which] = joined[places].view(dtype)[:, 0]
    return numbers
