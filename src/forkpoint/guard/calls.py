"""What a rank called lately: read from the recorder's own bytes, and condensed until it is small enough to send.

A whole dump takes the engine's reader 6 us per entry and a few MB; inside a training process both are too much, and
nearly all of it was seen at the last look. So only the newest entries are read, from the end backwards. If the bytes look
different from what is expected, nothing is read (`complete` is False): the guard then knows less, and says so. Reading
them wrongly could only make it look closer, with the engine's reader.

Of each group the last calls are sent one by one, and older ones as sums over blocks of BLOCK sequence numbers. A seq, or a
block, that two ranks both send must be equal.
"""

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np

from forkpoint.errors import InputError
from forkpoint.model.entries import BLOCK
from forkpoint.model.op import Signature, match_token, mix, split_name
from forkpoint.traces.pickles import INTEGER, REFERENCE, Machine, reference

_STRING: Final = re.compile(rb"X(.)(.)\x00\x00", re.DOTALL)
_KEPT: Final = 4096
_MESSAGES: Final = frozenset({"send", "recv"})
_NO_TOKEN: Final = 0
"""Of messages: only collectives are compared."""


class _Unexpected(Exception):
    pass


@dataclass(frozen=True, slots=True)
class RecentCall:
    record_id: int
    pg_id: int
    group: str
    """The group's name, the same on all its ranks."""
    seq: int
    token: int
    """What members must agree on (model/tokens.py)."""
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Recent:
    calls: tuple[RecentCall, ...]
    """Collectives, oldest first."""
    newest: int
    """Highest record number, -1 without any."""
    complete: bool
    """Nothing after the last look is missing: neither evicted from the ring buffer nor unreadable."""


class RecentReader:
    """Reads dumps made without stacks."""

    def __init__(self) -> None:
        self._tokens: dict[object, int] = {}
        """Tokens by signature: a rank repeats its calls."""

    def read(self, data: bytes, after: int) -> Recent:
        """Calls with record numbers above `after`."""
        calls: list[RecentCall] = []
        newest, previous = -1, None
        try:
            for call in _Backwards(data, self._token).calls():
                if previous is not None and call.record_id != previous - 1:
                    return Recent(tuple(reversed(calls)), newest, complete=False)
                newest, previous = max(newest, call.record_id), call.record_id
                if previous <= after:
                    return Recent(tuple(reversed(calls)), newest, complete=True)
                calls += [call] if call.token != _NO_TOKEN else []
        except (_Unexpected, InputError, KeyError, TypeError, ValueError, IndexError):
            return Recent((), -1, complete=False)
        return Recent(tuple(reversed(calls)), newest, complete=previous is None or previous == after + 1)

    def _token(self, what: "_What") -> int:
        token = self._tokens.get(what)
        if token is None:
            if len(self._tokens) >= _KEPT:
                self._tokens.clear()
            lib, op, peers = split_name(what[0])
            token = _NO_TOKEN if op in _MESSAGES else match_token(Signature(lib, op, peers, *what[1:]))
            self._tokens[what] = token
        return token


_Sizes = tuple[tuple[int, ...], ...]
_What = tuple[str, _Sizes, tuple[str, ...], _Sizes, tuple[str, ...]]
"""Name, sizes and dtypes."""


def _frozen(value: object) -> tuple[object, ...]:
    return tuple(tuple(v) if isinstance(v, list) else v for v in cast("list[object]", value))


class _Backwards:
    """The calls of one dump, newest first. Each entry must end where the one after it began."""

    def __init__(self, data: bytes, token_of: Callable[[_What], int]) -> None:
        self._data = data
        self._token_of = token_of
        self._strings, self._string_at = _strings(data)
        self._layout: re.Pattern[bytes] | None = None
        self._known: dict[tuple[bytes, ...], RecentCall] = {}
        """An example, by the bytes of the parts of an entry that seldom change."""

    def calls(self) -> Iterator[RecentCall]:
        """Messages, too: without a token."""
        if "record_id" not in self._strings:
            return
        start = b"}(" + reference(self._strings.index("record_id"))
        first = self._data.find(b"}(X\x09\x00\x00\x00record_id")
        begins, end = len(self._data), -1
        while begins > first:
            found = max(self._data.rfind(start, 0, begins), first)
            call, stop = self._read(found)
            if stop == end or (end == -1 and self._data[stop : stop + 1] == b"e"):
                yield call
                end = found
            elif found == first:
                raise _Unexpected
            begins = found

    def _read(self, at: int) -> tuple[RecentCall, int]:
        match = self._layout.match(self._data, at) if self._layout else None
        if match is None:
            fields, stop = self._read_fields(at)
            self._layout = _layout(fields, self._strings)
            return self._call(fields), stop
        record, pg_id, group, seq, name, *lists, timeout = match.groups()
        parts = (group, name, *lists, timeout)
        known = self._known.get(parts)
        if known is None:
            known = self._known[parts] = self._call(self._read_fields(at)[0])
        numbers = _number(record), _number(pg_id), known.group, _number(seq)
        return RecentCall(*numbers, known.token, known.timeout_s), match.end()

    def _call(self, fields: dict[str, object]) -> RecentCall:
        name, _ = cast("tuple[str, str]", fields["process_group"])
        counters = [fields[key] for key in ("record_id", "pg_id", "collective_seq_id")]
        timeout_ms = fields.get("timeout_ms", 0)
        if not all(type(value) is int for value in (*counters, timeout_ms)):
            raise _Unexpected
        record_id, pg_id, seq = cast("list[int]", counters)
        parts = (_frozen(fields[key]) for key in ("input_sizes", "input_dtypes", "output_sizes", "output_dtypes"))
        token = self._token_of(cast("_What", (fields["profiling_name"], *parts)))
        return RecentCall(record_id, pg_id, name, seq, token, cast("int", timeout_ms) / 1000)

    def _read_fields(self, at: int) -> tuple[dict[str, object], int]:
        """The entry that begins at `at`, and where it ends."""
        machine = Machine(self._data, pause_depth=0)
        machine.pos = at
        machine.memo += self._strings[: bisect_left(self._string_at, at)]
        if not machine.run() or not isinstance(machine.stack[-1], dict):
            raise _Unexpected
        return cast("dict[str, object]", machine.stack[-1]), machine.pos


_LIST: Final = rb"\](?:\((?:\](?:\(" + INTEGER + rb"*e)?|" + REFERENCE + rb")*e)?"
_CAPTURED: Final = {
    "record_id": INTEGER, "pg_id": INTEGER, "process_group": REFERENCE + REFERENCE + rb"\x86",
    "collective_seq_id": INTEGER, "profiling_name": REFERENCE, "input_sizes": _LIST, "input_dtypes": _LIST,
    "output_sizes": _LIST, "output_dtypes": _LIST, "timeout_ms": INTEGER,
}  # fmt: skip
"""In the order in which every release that has them writes them."""
_SKIPPED: Final = rb"(?:" + INTEGER + rb"|" + REFERENCE + rb"|[N\x88\x89]|G.{8})"


def _layout(fields: dict[str, object], strings: list[str]) -> "re.Pattern[bytes] | None":
    """A pattern for entries like this one; None if the keys come in another order."""
    if [key for key in fields if key in _CAPTURED] != list(_CAPTURED):
        return None
    pattern = rb"\}\("
    for key in fields:
        value = rb"(" + _CAPTURED[key] + rb")" if key in _CAPTURED else _SKIPPED
        pattern += re.escape(reference(strings.index(key))) + value
    return re.compile(pattern + rb"u", re.DOTALL)


def _number(raw: bytes) -> int:
    match raw[0]:
        case 0x8A:
            return int.from_bytes(raw[2:], "little", signed=True)
        case 0x4A:
            return int.from_bytes(raw[1:], "little", signed=True)
        case _:
            return int.from_bytes(raw[1:], "little")


def _strings(data: bytes) -> tuple[list[str], list[int]]:
    """The pickle's strings by memo index, and where each begins: the recorder writes each string once, and memoizes nothing
    else before the end.
    """
    strings: list[str] = []
    begins: list[int] = []
    at = 0
    while found := _STRING.search(data, at):
        length = found[1][0] | found[2][0] << 8
        end = found.end() + length
        number = data[end + 1] if data[end : end + 1] == b"q" else int.from_bytes(data[end + 1 : end + 5], "little")
        if data[end : end + 1] in (b"q", b"r") and number == len(strings):
            strings.append(data[found.end() : end].decode("utf-8", "replace"))
            begins.append(found.start())
            at = end
        else:
            at = found.start() + 1
    return strings, begins


# ---------------------------------------------------------------------------------------------------------------------
# What one rank called, small enough to send at every look: block signatures over absolute seqs, like the engine's.

TAIL: Final = 64
"""Calls sent one by one: more than most jobs issue between two digests, in half a kilobyte."""
BLOCKS: Final = 16
"""Blocks sent: what torch's ring buffer holds by default (2,000 calls)."""


@dataclass(slots=True)
class GroupDigest:
    last_seq: int = 0
    timeout_s: float = 0.0
    tail: "OrderedDict[int, int]" = field(default_factory=OrderedDict)
    """Token by seq; calls that were coalesced share a seq, and their tokens are added."""
    blocks: "OrderedDict[int, int]" = field(default_factory=OrderedDict)
    """Signature by number of the block. Only blocks that were seen from their first seq to their last."""
    open_from: int | None = None
    """The block being filled, if it was seen from its first seq on."""
    open_tokens: "OrderedDict[int, int]" = field(default_factory=OrderedDict)


class Digest:
    def __init__(self) -> None:
        self.groups: dict[str, GroupDigest] = {}
        self.names: dict[int, str] = {}
        """Group by pg_id, which is the key of the recorder's counters."""
        self.seen = -1
        """The newest record that was read."""
        self.missed = 0
        """How often calls left the ring buffer before they were read."""

    def add(self, recent: Recent) -> None:
        if not recent.complete:
            self.missed += self.seen >= 0
            for group in self.groups.values():
                group.open_from = None
        for call in recent.calls:
            if call.pg_id not in self.names:
                self._add_group(call.pg_id, call.group)
            group = self.groups.setdefault(call.group, GroupDigest())
            group.timeout_s = call.timeout_s
            _add(group, call.seq, call.token, whole=recent.complete)
        self.seen = max(self.seen, recent.newest)

    def _add_group(self, pg_id: int, name: str) -> None:
        """A group that was destroyed and created again starts anew: same name and seqs, other calls."""
        for earlier in [known for known, group in self.names.items() if group == name]:
            del self.names[earlier]
            self.groups.pop(name, None)
        self.names[pg_id] = name


def _add(group: GroupDigest, seq: int, token: int, *, whole: bool) -> None:
    block = seq // BLOCK
    if group.open_from != block:
        if group.open_from is not None and block > group.open_from:
            _close(group, group.open_from)
        begins = whole and (seq <= 1 if group.last_seq == 0 else group.last_seq < block * BLOCK)
        group.open_from = block if begins else None
        group.open_tokens.clear()
    if group.open_from is not None:
        group.open_tokens[seq] = (group.open_tokens.get(seq, 0) + token) % 2**64
    group.tail[seq] = (group.tail.get(seq, 0) + token) % 2**64
    if len(group.tail) > TAIL:
        group.tail.popitem(last=False)
    group.last_seq = max(group.last_seq, seq)


def _close(group: GroupDigest, block: int) -> None:
    seqs = np.fromiter(group.open_tokens.keys(), dtype=np.int64)
    tokens = np.fromiter(group.open_tokens.values(), dtype=np.uint64)
    group.blocks[block] = int(mix(tokens, seqs).sum(dtype=np.uint64))
    if len(group.blocks) > BLOCKS:
        group.blocks.popitem(last=False)
