"""One entry of any schema version -> one row. After this, the PyTorch version does not matter."""

import re
from collections.abc import Sequence
from typing import Final, TypeGuard

from forkpoint.errors import UnreadableInput
from forkpoint.model.op import Signature, split_name
from forkpoint.traces.columns import NO_FRAMES, Table

STATES: Final = {"scheduled": 0, "started": 1, "completed": 2}
P2P_OPS: Final = frozenset({"send", "recv"})

_RANKS = re.compile(r"\[ *+([0-9]{1,9} *+(?:, *+[0-9]{1,9} *+)*+)?\]")

# c10::ScalarType in the order of its enum: nightly builds before schema 2.1 wrote the number.
_SCALAR_TYPES: Final = (
    "Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "ComplexHalf", "ComplexFloat", "ComplexDouble",
    "Bool", "QInt8", "QUInt8", "QInt32", "BFloat16",
)  # fmt: skip

_WORTH_KEEPING: Final = range(256, 2 << 20)
"""Lengths of rank lists that are cached: long ones, which all dumps of a job repeat."""
_KEPT_LISTS: Final = 16
_kept: dict[str, tuple[int, ...]] = {}


def dtype_name(number: int) -> str:
    return _SCALAR_TYPES[number] if 0 <= number < len(_SCALAR_TYPES) else str(number)


def parse_ranks(text: str) -> tuple[int, ...] | None:
    """The ranks in "[0, 1, 2]"; None if the text is not such a list."""
    ranks = _kept.get(text)
    if ranks is not None:
        return ranks
    found = _RANKS.fullmatch(text)
    if found is None:
        return None
    ranks = tuple(map(int, found[1].split(","))) if found[1] else ()
    if len(text) in _WORTH_KEEPING:
        if len(_kept) >= _KEPT_LISTS:
            _kept.clear()
        _kept[text] = ranks
    return ranks


Entry = dict[object, object]
Call = tuple[int, int, int, int, int, int, int, int]
"""The last fields of a row (group, signature, thread, pg_id, timeout_ms, is_p2p, state, retired), which often repeat."""

_INT64: Final = range(-(2**63), 2**63)
_LINES: Final = range(-(2**31), 2**31)
_KEPT_STACKS: Final = 4096
_NS_PER_US: Final = 1000
_TEXT_PER_VISIT: Final = 64
"""Characters that cost as much time as visiting one value."""


class EntryReader:
    """Turns entries into rows of a table. An invalid entry is left out and counted."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.read = 0
        self.left_out = 0
        self.why_left_out = ""
        self._signatures: dict[str, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._kept: list[Sequence[object]] = []

    def add(self, entry: object) -> None:
        try:
            if not isinstance(entry, dict):
                raise UnreadableInput("it is not a dict")  # noqa: TRY301  one place counts them all
            self._add(entry)
        except UnreadableInput as error:
            self.left_out += 1
            self.why_left_out = self.why_left_out or str(error)

    def _add(self, entry: Entry) -> None:
        group, signature, thread, pg_id, timeout_ms, is_p2p, state, retired = self.call(entry)
        collective_seq, p2p_seq = _integer(entry, "collective_seq_id"), _integer(entry, "p2p_seq_id")
        created_ns = _integer(entry, "time_created_ns")
        if "seq_id" in entry and "collective_seq_id" not in entry:
            # Before schema 2.1, collectives and messages shared one counter.
            collective_seq = _integer(entry, "seq_id")
            p2p_seq = collective_seq if is_p2p else 0
        if "time_created_us" in entry and "time_created_ns" not in entry:
            created_ns = _integer(entry, "time_created_us") * _NS_PER_US
        row = (
            _integer(entry, "record_id"),
            collective_seq,
            p2p_seq,
            _integer(entry, "op_id"),
            created_ns,
            _integer(entry, "time_discovered_started_ns"),
            _integer(entry, "time_discovered_completed_ns"),
            self.stack(entry.get("frames")),
            group,
            signature,
            thread,
            pg_id,
            timeout_ms,
            is_p2p,
            state,
            retired,
        )
        if min(row) not in _INT64 or max(row) not in _INT64:
            raise UnreadableInput("a number is too large")
        self.read += 1
        self.table.add_row(row)

    def call(self, entry: Entry) -> Call:
        """What the entry says about the call itself, without counters, times and stack."""
        pg_id = _integer(entry, "pg_id")
        name = entry.get("profiling_name")
        if type(name) is not str:
            raise UnreadableInput("profiling_name is not text")
        state = entry.get("state", "scheduled")
        if type(state) is not str:
            raise UnreadableInput("state is not text")
        thread = entry.get("thread_name", "")
        if type(thread) is not str:
            raise UnreadableInput("thread_name is not text")
        is_p2p = _flag(entry, "is_p2p") if "is_p2p" in entry else split_name(name)[1] in P2P_OPS
        group_name, group_desc = _group(entry, pg_id)
        return (
            self.table.group(group_name, group_desc),
            self._signature(entry, name),
            self.table.thread(thread),
            pg_id,
            _integer(entry, "timeout_ms"),
            is_p2p,
            STATES.get(state, 0),
            _flag(entry, "retired"),
        )

    def stack(self, frames: object) -> int:
        """Index of the stack. Entries share frame objects, so most known stacks are found by object identity."""
        if frames is None:
            return NO_FRAMES
        if not is_list(frames):
            raise UnreadableInput("frames is not a list")
        self.table.spend(len(frames))
        identity = tuple(map(id, frames))
        index = self._stacks.get(identity)
        if index is None:
            index = self.table.stack([self._frame(frame) for frame in frames])
            if len(self._kept) < _KEPT_STACKS:
                self._kept.append(frames)  # an object's id is unique only while the object lives
                self._stacks[identity] = index
        return index

    def _frame(self, frame: object) -> int:
        if not isinstance(frame, dict):
            raise UnreadableInput("a frame is not a dict")
        name, filename, line = frame.get("name"), frame.get("filename"), frame.get("line")
        if type(name) is not str or type(filename) is not str or type(line) is not int or line not in _LINES:
            raise UnreadableInput("a frame lacks its name, filename or line")
        return self.table.frame(name, filename, line)

    def _signature(self, entry: Entry, name: str) -> int:
        inputs, input_dtypes = self._sizes(entry, "input_sizes"), self._dtypes(entry, "input_dtypes")
        outputs, output_dtypes = self._sizes(entry, "output_sizes"), self._dtypes(entry, "output_dtypes")
        self.table.spend(sum(map(len, (name, *input_dtypes, *output_dtypes))) // _TEXT_PER_VISIT)
        # The key is text, because looking that up is cheaper than building the signature.
        key = repr((name, inputs, input_dtypes, outputs, output_dtypes))
        index = self._signatures.get(key)
        if index is None:
            lib, op, peers = split_name(name)
            signature = Signature(
                lib,
                op,
                peers,
                _possible(inputs, "input_sizes"),
                tuple(input_dtypes),
                _possible(outputs, "output_sizes"),
                tuple(output_dtypes),
            )
            self.table.spend_text(name, *input_dtypes, *output_dtypes)
            index = self._signatures[key] = self.table.add_signature(signature)
        return index

    def _sizes(self, entry: Entry, field: str) -> list[list[int]]:
        """Raises unless the field is a list of lists of integers (or tuples instead of lists)."""
        sizes: list[list[int]] = []
        for size in self._list(entry, field):
            if not is_list(size):
                raise UnreadableInput(f"{field} is not a list of lists")
            self.table.spend(len(size))
            if not are_integers(size):
                raise UnreadableInput(f"{field} is not a list of lists of integers")
            sizes.append(list(size))
        return sizes

    def _dtypes(self, entry: Entry, field: str) -> list[str]:
        names: list[str] = []
        for dtype in self._list(entry, field):
            if type(dtype) is not str and type(dtype) is not int:
                raise UnreadableInput(f"{field} is not a list of names")
            names.append(dtype if isinstance(dtype, str) else dtype_name(dtype))
        return names

    def _list(self, entry: Entry, field: str) -> Sequence[object]:
        values = entry.get(field, ())
        if not is_list(values):
            raise UnreadableInput(f"{field} is not a list")
        self.table.spend(len(values))
        return values


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    return type(value) is list or type(value) is tuple


def are_integers(values: Sequence[object]) -> TypeGuard[Sequence[int]]:
    return not set(map(type, values)) - {int}


def _integer(entry: Entry, field: str) -> int:
    value = entry.get(field)
    if value is None:
        return 0
    if type(value) is not int:
        raise UnreadableInput(f"{field} is not an integer")
    return value


def _flag(entry: Entry, field: str) -> bool:
    value = entry.get(field)
    if value is None or value is False:
        return False
    if value is not True:
        raise UnreadableInput(f"{field} is neither true nor false")
    return True


def _group(entry: Entry, pg_id: int) -> tuple[str, str]:
    """(name, desc). Before schema 2.1, groups had only a number."""
    named = entry.get("process_group")
    if named is None:
        return str(pg_id), ""
    if not is_list(named) or len(named) != 2:
        raise UnreadableInput("process_group is not a pair")
    name, desc = named
    if type(name) is not str or type(desc) is not str:
        raise UnreadableInput("process_group is not a pair of texts")
    return name, desc


def _possible(sizes: list[list[int]], field: str) -> tuple[tuple[int, ...], ...]:
    elements = 0
    for size in sizes:
        in_tensor = 1
        for length in size:
            in_tensor *= length
            # Nobody allocates 2**63 elements, and later code counts them in 64 bits.
            if length < 0 or in_tensor not in _INT64:
                raise UnreadableInput(f"{field} is impossible")
        elements += in_tensor
    if elements not in _INT64:
        raise UnreadableInput(f"{field} is impossible")
    return tuple(map(tuple, sizes))
