"""What a rank called since the last look, from the recorder's own bytes.

A whole dump takes the engine's reader 6 us per entry and a few MB; inside a training process both are too much, and
nearly all of it was seen at the last look. So only the newest entries are read, from the end backwards. Bytes come from
this process's own recorder. If they look different from what is expected, nothing is read (`complete` is False): the
guard then knows less, and says so. A wrong reading could only make it look closer, with the engine's reader.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

from forkpoint.model.op import Signature
from forkpoint.model.op_names import split_name
from forkpoint.model.tokens import match_token

_STRING: Final = re.compile(rb"X(.)(.)\x00\x00", re.DOTALL)
_MARK: Final = object()
_KEPT: Final = 4096
_MESSAGES: Final = frozenset({"send", "recv"})


class _Unexpected(Exception):
    pass


@dataclass(frozen=True, slots=True)
class RecentCall:
    record_id: int
    pg_id: int
    group: str
    """The group's name, as all its ranks know it."""
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
        """What signatures came to: a rank calls the same again and again."""

    def read(self, data: bytes, after: int) -> Recent:
        """Calls with record numbers above `after`."""
        calls: list[RecentCall] = []
        newest, previous = -1, None
        try:
            for entry in _Backwards(data).entries():
                if previous is not None and entry.record_id != previous - 1:
                    return Recent(tuple(reversed(calls)), newest, complete=False)
                newest, previous = max(newest, entry.record_id), entry.record_id
                if previous <= after:
                    return Recent(tuple(reversed(calls)), newest, complete=True)
                call = self._call(entry)
                calls += [call] if call else []
        except (_Unexpected, KeyError, TypeError, ValueError, IndexError):
            return Recent((), -1, complete=False)
        return Recent(tuple(reversed(calls)), newest, complete=previous is None or previous == after + 1)

    def _call(self, entry: "_Entry") -> RecentCall | None:
        what = entry.what
        token = self._tokens.get(what)
        if token is None:
            if len(self._tokens) >= _KEPT:
                self._tokens.clear()
            lib, op, peers = split_name(what[0])
            token = 0 if op in _MESSAGES else match_token(Signature(lib, op, peers, *what[1:]))
            self._tokens[what] = token
        if token == 0:
            return None
        return RecentCall(entry.record_id, entry.pg_id, entry.group, entry.seq, token, entry.timeout_ms / 1000)


_Sizes = tuple[tuple[int, ...], ...]
_What = tuple[str, _Sizes, tuple[str, ...], _Sizes, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Entry:
    record_id: int
    pg_id: int
    group: str
    seq: int
    timeout_ms: int
    what: _What
    """Name, sizes and dtypes."""


def _entry(fields: dict[str, object]) -> _Entry:
    name, desc = cast("tuple[str, str]", fields["process_group"])
    del desc
    counters = [fields[key] for key in ("record_id", "pg_id", "collective_seq_id")]
    timeout = fields.get("timeout_ms", 0)
    if not all(type(value) is int for value in (*counters, timeout)):
        raise _Unexpected
    record_id, pg_id, seq = cast("list[int]", counters)
    parts = (_frozen(fields[key]) for key in ("input_sizes", "input_dtypes", "output_sizes", "output_dtypes"))
    what = cast("_What", (fields["profiling_name"], *parts))
    return _Entry(record_id, pg_id, name, seq, cast("int", timeout), what)


def _frozen(value: object) -> tuple[object, ...]:
    return tuple(tuple(v) if isinstance(v, list) else v for v in cast("list[object]", value))


class _Backwards:
    """Entries of one dump, newest first. Each must end where the one after it began."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._strings = _strings(data)
        self._layout: re.Pattern[bytes] | None = None
        self._known: dict[tuple[bytes, ...], tuple[str, _What, int]] = {}
        """What the parts of an entry that seldom change were found to mean."""

    def entries(self) -> Iterator[_Entry]:
        if "record_id" not in self._strings:
            return
        start = b"}(" + _reference(self._strings.index("record_id"))
        first = self._data.find(b"}(X\x09\x00\x00\x00record_id")
        begins, end = len(self._data), -1
        while begins > first:
            found = max(self._data.rfind(start, 0, begins), first)
            entry, stop = self._read(found)
            if stop == end or (end == -1 and self._data[stop : stop + 1] == b"e"):
                yield entry
                end = found
            elif found == first:
                raise _Unexpected
            begins = found

    def _read(self, at: int) -> tuple[_Entry, int]:
        match = self._layout.match(self._data, at) if self._layout else None
        if match is None:
            fields, stop = _read_fields(self._data, at, self._strings)
            self._layout = _layout(fields, self._strings)
            return _entry(fields), stop
        record, pg_id, group, seq, name, *lists, timeout = match.groups()
        parts = (group, name, *lists, timeout)
        known = self._known.get(parts)
        if known is None:
            fields, _ = _read_fields(self._data, at, self._strings)
            entry = _entry(fields)
            known = self._known[parts] = entry.group, entry.what, entry.timeout_ms
        return _Entry(_number(record), _number(pg_id), known[0], _number(seq), known[2], known[1]), match.end()


_INTEGER: Final = rb"K.|M..|J....|\x8a\x08.{8}"
_TEXT: Final = rb"h.|j...."
_LIST: Final = rb"\](?:\((?:\](?:\((?:" + _INTEGER + rb")*e)?|" + _TEXT + rb")*e)?"
_CAPTURED: Final = {
    "record_id": _INTEGER, "pg_id": _INTEGER, "process_group": rb"(?:" + _TEXT + rb"){2}\x86",
    "collective_seq_id": _INTEGER, "profiling_name": _TEXT, "input_sizes": _LIST, "input_dtypes": _LIST,
    "output_sizes": _LIST, "output_dtypes": _LIST, "timeout_ms": _INTEGER,
}  # fmt: skip
"""In the order in which every release that has them writes them."""
_SKIPPED: Final = rb"(?:" + _INTEGER + rb"|" + _TEXT + rb"|[N\x88\x89]|G.{8})"


def _layout(fields: dict[str, object], strings: list[str]) -> "re.Pattern[bytes] | None":
    """A pattern for entries like this one; None where the order is another."""
    if [key for key in fields if key in _CAPTURED] != list(_CAPTURED):
        return None
    pattern = rb"\}\("
    for key in fields:
        value = rb"(" + _CAPTURED[key] + rb")" if key in _CAPTURED else _SKIPPED
        pattern += re.escape(_reference(strings.index(key))) + value
    return re.compile(pattern + rb"u", re.DOTALL)


def _reference(number: int) -> bytes:
    return bytes((0x68, number)) if number < 256 else b"j" + number.to_bytes(4, "little")


_INTEGER_BYTES: Final = {0x4B: 1, 0x4D: 2, 0x4A: 4}


def _number(raw: bytes) -> int:
    match raw[0]:
        case 0x8A:
            return int.from_bytes(raw[2:], "little", signed=True)
        case 0x4A:
            return int.from_bytes(raw[1:], "little", signed=True)
        case _:
            return int.from_bytes(raw[1:], "little")


def _strings(data: bytes) -> list[str]:
    """Texts by their number: the recorder writes each once, and numbers nothing else before the end."""
    strings: list[str] = []
    at = 0
    while found := _STRING.search(data, at):
        length = found[1][0] | found[2][0] << 8
        end = found.end() + length
        number = data[end + 1] if data[end : end + 1] == b"q" else _long(data, end + 1)
        if data[end : end + 1] in (b"q", b"r") and number == len(strings):
            strings.append(data[found.end() : end].decode("utf-8", "replace"))
            at = end
        else:
            at = found.start() + 1
    return strings


def _long(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _read_fields(data: bytes, at: int, strings: list[str]) -> tuple[dict[str, object], int]:
    """The entry that begins at `at`, and where it ends. Opcodes of torch's pickler, and no others."""
    stack: list[object] = []
    while at < len(data):
        code, at = data[at], at + 1
        match code:
            case 0x68:  # BINGET
                stack.append(strings[data[at]])
                at += 1
            case 0x4B | 0x4D | 0x4A | 0x8A:  # BININT1, BININT2, BININT, LONG1
                length = 1 + data[at] if code == 0x8A else _INTEGER_BYTES[code]
                stack.append(_number(data[at - 1 : at + length]))
                at += length
            case 0x58:  # BINUNICODE, followed by its number
                length = _long(data, at)
                stack.append(data[at + 4 : at + 4 + length].decode("utf-8", "replace"))
                at += 4 + length
                at += 2 if data[at : at + 1] == b"q" else 5
            case 0x6A:  # LONG_BINGET
                stack.append(strings[_long(data, at)])
                at += 4
            case 0x47:  # BINFLOAT: a duration, which nobody here asks for
                stack.append(None)
                at += 8
            case 0x75 if len(stack) >= 2 and stack[0] is _MARK:  # SETITEMS: of the entry itself, it is done
                return dict(zip(cast("list[str]", stack[1::2]), stack[2::2], strict=True)), at
            case _:
                _build(code, stack)
    raise _Unexpected


def _build(code: int, stack: list[object]) -> None:
    match code:
        case 0x7D:  # EMPTY_DICT: the entry, whose items follow its mark
            if stack:
                raise _Unexpected
        case 0x28:  # MARK
            stack.append(_MARK)
        case 0x5D:  # EMPTY_LIST
            stack.append([])
        case 0x65:  # APPENDS
            mark = len(stack) - 1 - stack[::-1].index(_MARK)
            cast("list[object]", stack[mark - 1]).extend(stack[mark + 1 :])
            del stack[mark:]
        case 0x86:  # TUPLE2
            stack[-2:] = [(stack[-2], stack[-1])]
        case 0x4E | 0x88 | 0x89:  # NONE, NEWTRUE, NEWFALSE
            stack.append({0x4E: None, 0x88: True, 0x89: False}[code])
        case _:
            raise _Unexpected
