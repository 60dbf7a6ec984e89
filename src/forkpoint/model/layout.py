"""Packs numbers, texts and arrays into bytes, little-endian, and reads them back."""

import struct
from collections.abc import Sequence
from typing import Annotated, Generic, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np

from forkpoint.model.op import Ints, Tokens

NOTHING = -(2**63)
"""Stands for None where a number may be missing."""
MAX_ITEMS = 1 << 20
"""Items in one array: the number of ranks in the largest world that we accept."""

Key = Annotated[int, "Q", "<u8"]
"""Key of an entry in the shared tables, or NO_KEY. The annotations are the codes of `struct` and of numpy."""
Number = Annotated[int, "q", "<i8"]
Count = Annotated[int, "I", "<u4"]
Index = Annotated[int, "i", "<i4"]
Byte = Annotated[int, "B", "u1"]
Fields = TypeVar("Fields", bound=NamedTuple)
NO_KEY = 0

U8, U32, U64, I64 = (struct.Struct(f"<{code}") for code in "BIQq")
_FIRST = struct.Struct("<qB")
_WIDTHS = {1: "<i1", 2: "<i2", 4: "<i4", 8: "<i8"}
_INDEXES = ((256, "<u1"), (65536, "<u2"), (2**32, "<u4"))


class Layout(Generic[Fields]):
    """The bytes of a named tuple: its fields one after another, as wide as their annotations say."""

    def __init__(self, fields: type[Fields]) -> None:
        codes = {name: get_args(hint)[1:] for name, hint in get_type_hints(fields, include_extras=True).items()}
        self._struct = struct.Struct("<" + "".join(code for code, _ in codes.values()))
        self._make = fields._make
        self.size = self._struct.size
        self.dtype = np.dtype([(name, column) for name, (_, column) in codes.items()])
        """For reading many of them at once, as columns."""

    def pack(self, fields: Fields) -> bytes:
        return self._struct.pack(*fields)

    def pack_into(self, data: bytearray, at: int, fields: Fields) -> None:
        self._struct.pack_into(data, at, *fields)

    def read(self, data: bytes, at: int = 0) -> Fields:
        return self._make(self._struct.unpack_from(data, at))


def pack_text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return U32.pack(len(data)) + data


def pack_ints(values: Ints | Sequence[int]) -> bytes:
    """The first number, then the differences: only one if all are equal, else each in as few bytes as fit all."""
    array = np.asarray(values, dtype=np.int64)
    if not array.size:
        return U32.pack(0)
    steps = np.diff(array)
    head = U32.pack(array.size) + I64.pack(int(array[0]))
    if not steps.size or (steps == steps[0]).all():
        return head + b"\0" + I64.pack(int(steps[0]) if steps.size else 0)
    low, high = int(steps.min()), int(steps.max())
    width = next(w for w in _WIDTHS if -(1 << (8 * w - 1)) <= low and high < 1 << (8 * w - 1))
    return head + U8.pack(width) + steps.astype(_WIDTHS[width]).tobytes()


def pack_tokens(values: Tokens) -> bytes:
    """Distinct values in order of appearance, then the index of each value among them."""
    if not values.size:
        return U32.pack(0)
    distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    head = U32.pack(values.size) + U32.pack(distinct.size) + distinct[order].astype("<u8").tobytes()
    return head + place[inverse].astype(_index_type(distinct.size)).tobytes()


def _index_type(distinct: int) -> str:
    return next(code for limit, code in _INDEXES if distinct <= limit)


def as_range(packed: bytes) -> range | None:
    """What `pack_ints` packed, as a range, if the numbers rise in equal steps; else None. Saves unpacking 100,000."""
    size = U32.unpack_from(packed)[0]
    if not size or packed[U32.size + I64.size]:
        return None
    first, step = I64.unpack_from(packed, U32.size)[0], I64.unpack_from(packed, U32.size + I64.size + U8.size)[0]
    return range(first, first + size * max(step, 1), max(step, 1)) if step > 0 or size == 1 else None


def skip_ints(data: bytes, pos: int) -> tuple[int, int]:
    """How many numbers `pack_ints` packed at `pos`, and where they end."""
    size = U32.unpack_from(data, pos)[0]
    if not size:
        return 0, pos + U32.size
    width = data[pos + U32.size + I64.size]
    if size > MAX_ITEMS or width not in (0, *_WIDTHS):
        raise ValueError(f"an array of {size} items of {width} bytes")
    return size, pos + U32.size + I64.size + U8.size + (width * (size - 1) if width else I64.size)


class Reader:
    """Reads values one after another. Raises ValueError or struct.error on damaged bytes."""

    __slots__ = ("data", "pos")

    def __init__(self, data: bytes, pos: int = 0) -> None:
        self.data = data
        self.pos = pos

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self.data, self.pos)
        self.pos += layout.size
        return values

    def number(self, layout: struct.Struct) -> int:
        return self.take(layout)[0]

    def bytes(self, size: int) -> bytes:
        end = self.pos + size
        if end > len(self.data):
            raise ValueError("ends early")
        taken = self.data[self.pos : end]
        self.pos = end
        return taken

    def text(self) -> str:
        return self.bytes(self.number(U32)).decode("utf-8", "surrogatepass")

    def keys(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", self.bytes(8 * count))

    def ints(self) -> Ints:
        size = self._size()
        if not size:
            return np.zeros(0, np.int64)
        first, width = self.take(_FIRST)
        values = np.empty(size, np.int64)
        values[0] = first
        values[1:] = self._array(_WIDTHS[width], size - 1) if width else self.number(I64)
        return values.cumsum()

    def tokens(self) -> Tokens:
        size = self._size()
        if not size:
            return np.zeros(0, np.uint64)
        distinct = self._array("<u8", self.number(U32)).astype(np.uint64)
        return distinct[self._array(_index_type(distinct.size), size)]

    def end(self) -> None:
        if self.pos != len(self.data):
            raise ValueError("bytes after the end")

    def _size(self) -> int:
        size = self.number(U32)
        if size > MAX_ITEMS:
            raise ValueError(f"an array of {size} items")
        return size

    def _array(self, code: str, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.frombuffer(self.bytes(size * np.dtype(code).itemsize), code)
