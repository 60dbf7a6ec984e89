"""A safe pickle reader: lists opcodes (`opcodes`) or executes them (`Machine`). All code that opens pickles uses it.

Python's own unpickler imports and calls what a file names. This one has an allow-list: the opcodes that build
None, bools, numbers, text, lists, tuples and dicts. It cannot call anything, its memory stays a small multiple
of the file's size, and it can pause between two entries, so a dump of any length can be read as a stream.

The machine raises HostileInput for anything that plain data does not need, and UnreadableInput if the bytes end early or
make no sense. After UnreadableInput its state is intact: what was read before can still be used.
"""

from collections.abc import Callable, Iterator
from struct import Struct, error
from typing import Final

from forkpoint.errors import HostileInput, UnreadableInput

MAX_TEXT: Final = 16 << 20
"""Bytes of one text. The longest honest one is a group's rank list: 0.7 MB for 100,000 ranks."""
MAX_INTEGER: Final = 255
"""Bytes of one integer: the limit of LONG1."""
MAX_DEPTH: Final = 64
"""Open marks. An honest dump has 5."""
SPARE_CONTAINERS: Final = 100_000
"""Lists, tuples and dicts a file may build in addition to one per four bytes (an empty one takes about 60 bytes)."""
STREAM_DEPTH: Final = 2
"""Marks that are open between two entries: those of the top dict and of its list of entries."""

_LENGTH1, _LENGTH4, _LENGTH8 = Struct("<B"), Struct("<I"), Struct("<Q")
_U4 = _LENGTH4.unpack_from

_BINGET: Final = 0x68
_LONG_BINGET: Final = 0x6A
_BININT1: Final = 0x4B
_STOP: Final = 0x2E
_SETITEMS: Final = 0x75
PROTO: Final = 0x80
FRAME: Final = 0x95
BINUNICODE: Final = 0x58
TEXTS: Final = frozenset({0x8C, BINUNICODE, 0x8D})
BYTES: Final = frozenset({0x43, 0x42, 0x8E})
MEMO_PUTS: Final = frozenset({0x94, 0x71, 0x72})
MEMO_GETS: Final = frozenset({_BINGET, _LONG_BINGET})

REFERENCE: Final = rb"(?:h.|j.{4})"
"""Regular expression for a memo reference. Below: for an integer and for a bool."""
INTEGER: Final = rb"(?:K.|M..|J.{4}|\x8a\x08.{8})"
FLAG: Final = rb"[\x88\x89]"

_CODE: Final = {
    0x63: "GLOBAL", 0x93: "STACK_GLOBAL", 0x52: "REDUCE", 0x62: "BUILD", 0x69: "INST", 0x6F: "OBJ",
    0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x50: "PERSID", 0x51: "BINPERSID",
}  # fmt: skip
"""Opcodes that import, call, or look something up outside the file."""
_NOT_PLAIN: Final = {
    0x30: "POP", 0x31: "POP_MARK", 0x32: "DUP", 0x46: "FLOAT", 0x49: "INT", 0x4C: "LONG", 0x53: "STRING",
    0x54: "BINSTRING", 0x55: "SHORT_BINSTRING", 0x56: "UNICODE", 0x64: "DICT", 0x67: "GET", 0x6C: "LIST", 0x70: "PUT",
    0x8F: "EMPTY_SET", 0x90: "ADDITEMS", 0x91: "FROZENSET", 0x96: "BYTEARRAY8", 0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}  # fmt: skip
"""Harmless, but no program that writes dumps uses them."""


def opcodes(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(opcode, start, start of its content after any length field, end) of each opcode, without executing it. Stops after
    STOP, and where the bytes end early or are not plain data.
    """
    pos = 0
    while pos < len(data) and (op := data[pos]) in _PLAIN:
        inside = end = pos + 1 + _OPERAND.get(op, 0)
        if op in _SIZED:
            end += int.from_bytes(data[pos + 1 : inside], "little")
        if end > len(data):
            return
        yield op, pos, inside, end
        if op == _STOP:
            return
        pos = end


def reference(place: int) -> bytes:
    """The opcode that fetches this place of the memo."""
    return bytes((_BINGET, place)) if place < 256 else bytes((_LONG_BINGET,)) + place.to_bytes(4, "little")


class Machine:
    """Executes one pickle. `marks` holds the enclosing stacks, outermost first."""

    __slots__ = ("containers_left", "data", "marks", "marks_left", "memo", "pause_depth", "pos", "root", "stack")

    def __init__(self, data: bytes, pause_depth: int = STREAM_DEPTH) -> None:
        self.data = data
        self.pos = 0
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: list[object] = []
        self.containers_left = len(data) // 4 + SPARE_CONTAINERS
        self.marks_left = len(data) // 5 + SPARE_CONTAINERS
        self.pause_depth = pause_depth
        self.root: object = None
        """The unpickled value, once `run` has returned False."""

    def run(self) -> bool:
        """Executes until a dict was filled with at most `pause_depth` marks open; False when the pickle is complete."""
        data, memo, stack, pos = self.data, self.memo, self.stack, self.pos
        pause_depth = self.pause_depth
        try:
            while True:
                op = data[pos]
                # Most opcodes of a dump are these three: a function call for each would double the time.
                if op == _BINGET:
                    stack.append(memo[data[pos + 1]])
                    pos += 2
                elif op == _LONG_BINGET:
                    stack.append(memo[_U4(data, pos + 1)[0]])
                    pos += 5
                elif op == _BININT1:
                    stack.append(data[pos + 1])
                    pos += 2
                elif op == _STOP:
                    return self._stop(pos)
                else:
                    pos = _DISPATCH[op](self, pos + 1)
                    if stack is not self.stack:
                        stack = self.stack
                        if op == _SETITEMS and len(self.marks) <= pause_depth:
                            return True
        except (IndexError, error):
            raise self._broken(pos) from None
        finally:
            self.pos = pos

    def evaluate(self, raw: bytes) -> object:
        """The value of other opcodes, with this machine's memo and on its budget."""
        part = Machine(raw + b".", pause_depth=-1)
        part.memo, part.containers_left = self.memo, self.containers_left
        part.run()
        self.containers_left = part.containers_left
        return part.root

    def count_containers(self, count: int) -> None:
        """Call this before building lists, tuples and dicts."""
        self.containers_left -= count
        if self.containers_left < 0:
            raise HostileInput(f"has more lists and dicts than a file of its size can need; {_FORGED}")

    def _stop(self, pos: int) -> bool:
        if self.marks or len(self.stack) != 1:
            raise UnreadableInput(f"damaged at byte {pos} (it ends inside a value)")
        self.root = self.stack[0]
        return False

    def _broken(self, pos: int) -> UnreadableInput:
        """Reading past the end and popping from an empty stack or memo both raise IndexError: this finds out which."""
        size = len(self.data)
        if pos >= size or pos + 1 + _OPERAND.get(self.data[pos], 0) > size:
            return UnreadableInput(f"cut at byte {size}")
        return UnreadableInput(f"damaged at byte {pos} (an opcode lacks its operand)")


_FORGED: Final = "no recorder writes that: do not open it with other tools, and ask where it came from"


def _damaged(pos: int, why: str) -> UnreadableInput:
    return UnreadableInput(f"damaged at byte {pos - 1} ({why})")


def _refuse(m: Machine, pos: int) -> int:
    op, at = m.data[pos - 1], pos - 1
    if op in _CODE:
        raise HostileInput(f"asks to run code (pickle opcode {_CODE[op]} at byte {at}); {_FORGED}")
    if op in _NOT_PLAIN:
        raise HostileInput(f"is not plain data (pickle opcode {_NOT_PLAIN[op]} at byte {at}); {_FORGED}")
    raise _damaged(pos, f"0x{op:02x} is not a pickle opcode")


def _take(m: Machine, pos: int, length: int, limit: int) -> bytes:
    if length > limit:
        raise HostileInput(f"claims a value of {length} bytes at byte {pos}; {_FORGED}")
    raw = m.data[pos : pos + length]
    if len(raw) < length:
        raise UnreadableInput(f"cut at byte {len(m.data)}")
    return raw


# Opcodes. Each gets the position of its operand and returns that of the next opcode.


def _proto(m: Machine, pos: int) -> int:
    if not 2 <= m.data[pos] <= 5:
        raise _damaged(pos, f"pickle protocol {m.data[pos]}")
    return pos + 1


def _frame(_: Machine, pos: int) -> int:
    return pos + 8  # only a hint for reading ahead


def _mark(m: Machine, pos: int) -> int:
    if len(m.marks) == MAX_DEPTH:
        raise HostileInput(f"is nested more than {MAX_DEPTH} levels deep at byte {pos - 1}; {_FORGED}")
    m.marks_left -= 1
    if m.marks_left < 0:
        raise HostileInput(f"opens more lists and dicts than a file of its size can need; {_FORGED}")
    m.marks.append(m.stack)
    m.stack = []
    return pos


def _constant(value: object) -> Callable[[Machine, int], int]:
    def push(m: Machine, pos: int) -> int:
        m.stack.append(value)
        return pos

    return push


def _number(layout: Struct) -> Callable[[Machine, int], int]:
    number_at, size = layout.unpack_from, layout.size

    def push(m: Machine, pos: int) -> int:
        m.stack.append(number_at(m.data, pos)[0])
        return pos + size

    return push


def _sized(length: Struct, limit: int, decode: Callable[[bytes], object]) -> Callable[[Machine, int], int]:
    """The handler of an opcode whose value follows its length."""
    length_at, size = length.unpack_from, length.size

    def push(m: Machine, pos: int) -> int:
        count: int = length_at(m.data, pos)[0]
        m.stack.append(decode(_take(m, pos + size, count, limit)))
        return pos + size + count

    return push


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")  # paths may hold any byte; this keeps the text printable everywhere


def _integer(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def _empty_dict(m: Machine, pos: int) -> int:
    m.count_containers(1)
    m.stack.append({})
    return pos


def _empty_list(m: Machine, pos: int) -> int:
    m.count_containers(1)
    m.stack.append([])
    return pos


def _tuple_of(count: int) -> Callable[[Machine, int], int]:
    """Makes a tuple of the topmost values."""

    def make(m: Machine, pos: int) -> int:
        m.count_containers(1)
        if len(m.stack) < count:
            raise _damaged(pos, f"a tuple of {count} has too few values")
        m.stack[-count:] = (tuple(m.stack[-count:]),)
        return pos

    return make


def _tuple(m: Machine, pos: int) -> int:
    m.count_containers(1)
    items = m.stack
    m.stack = m.marks.pop()
    m.stack.append(tuple(items))
    return pos


def _append(m: Machine, pos: int) -> int:
    item, target = m.stack.pop(), m.stack[-1]
    if type(target) is not list:
        raise _damaged(pos, "APPEND needs a list")
    target.append(item)
    return pos


def _appends(m: Machine, pos: int) -> int:
    items = m.stack
    m.stack = m.marks.pop()
    target = m.stack[-1]
    if type(target) is not list:
        raise _damaged(pos, "APPENDS needs a list")
    target.extend(items)
    return pos


def _setitem(m: Machine, pos: int) -> int:
    value, key = m.stack.pop(), m.stack.pop()
    _set(m, pos, [key], [value])
    return pos


def _setitems(m: Machine, pos: int) -> int:
    items = m.stack
    m.stack = m.marks.pop()
    _set(m, pos, items[::2], items[1::2])
    return pos


def _set(m: Machine, pos: int, keys: list[object], values: list[object]) -> None:
    target = m.stack[-1]
    if type(target) is not dict:
        raise _damaged(pos, "SETITEMS needs a dict")
    if len(keys) != len(values):
        raise _damaged(pos, "a key without a value")
    # Only text and small numbers: a nested tuple could overflow the C stack in hash(), and large numbers can be chosen to
    # have the same hash.
    if set(map(type, keys)) - {str} and not all(
        type(key) is str or (type(key) is int and -(2**31) <= key < 2**31) for key in keys
    ):
        raise _damaged(pos, "a key is neither text nor a small number")
    target.update(zip(keys, values, strict=True))


def _put(m: Machine, pos: int, index: int) -> None:
    # Every writer numbers the memo without gaps and fills each place once; later code relies on it.
    if index != len(m.memo):
        raise _damaged(pos, f"memo place {index} follows {len(m.memo)} others")
    m.memo.append(m.stack[-1])


def _memoize(m: Machine, pos: int) -> int:
    m.memo.append(m.stack[-1])
    return pos


def _binput(m: Machine, pos: int) -> int:
    _put(m, pos, m.data[pos])
    return pos + 1


def _long_binput(m: Machine, pos: int) -> int:
    _put(m, pos, _U4(m.data, pos)[0])
    return pos + 4


_CONSTANTS: Final = {0x4E: None, 0x88: True, 0x89: False, 0x29: ()}
_HANDLERS: Final[dict[int, Callable[[Machine, int], int]]] = {
    **{code: _constant(value) for code, value in _CONSTANTS.items()},
    PROTO: _proto, FRAME: _frame, 0x28: _mark,
    0x4A: _number(Struct("<i")), 0x4D: _number(Struct("<H")), 0x47: _number(Struct(">d")),
    0x8A: _sized(_LENGTH1, MAX_INTEGER, _integer), 0x8B: _sized(_LENGTH4, MAX_INTEGER, _integer),
    0x8C: _sized(_LENGTH1, MAX_TEXT, _text), BINUNICODE: _sized(_LENGTH4, MAX_TEXT, _text),
    0x8D: _sized(_LENGTH8, MAX_TEXT, _text), 0x43: _sized(_LENGTH1, MAX_TEXT, bytes),
    0x42: _sized(_LENGTH4, MAX_TEXT, bytes), 0x8E: _sized(_LENGTH8, MAX_TEXT, bytes),
    0x7D: _empty_dict, 0x5D: _empty_list,
    0x85: _tuple_of(1), 0x86: _tuple_of(2), 0x87: _tuple_of(3), 0x74: _tuple,
    0x61: _append, 0x65: _appends, 0x73: _setitem, _SETITEMS: _setitems,
    0x94: _memoize, 0x71: _binput, 0x72: _long_binput,
}  # fmt: skip
_DISPATCH: Final = tuple(_HANDLERS.get(op, _refuse) for op in range(256))
_OPERAND: Final = {
    0x80: 1, 0x95: 8, 0x4A: 4, 0x4B: 1, 0x4D: 2, 0x8A: 1, 0x8B: 4, 0x47: 8, 0x8C: 1, 0x58: 4, 0x8D: 8,
    0x43: 1, 0x42: 4, 0x8E: 8, 0x71: 1, 0x72: 4, 0x68: 1, 0x6A: 4,
}  # fmt: skip
"""Number of bytes that must follow an opcode."""
_SIZED: Final = TEXTS | BYTES | {0x8A, 0x8B}
"""Opcodes whose operand is the length of what follows it."""
_PLAIN: Final = _HANDLERS.keys() | {_BINGET, _LONG_BINGET, _BININT1, _STOP}
