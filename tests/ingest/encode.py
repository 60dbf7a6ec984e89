"""Writes dumps the way PyTorch's C++ Pickler does.

Protocol 2. Texts are memoised by value; a frame by identity, and only if more than one stack holds it. No other
list, dict or tuple is memoised. Python's pickler does none of that, and the fast path depends on it.
"""

import struct
from collections import Counter
from collections.abc import Mapping, Sequence


class Encoder:
    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self.places: dict[str | int, int] = {}
        self.shared: set[int] = set()

    def value(self, value: object) -> None:
        if isinstance(value, str):
            self._text(value)
        elif isinstance(value, bool):
            self.out += b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            self.out += _integer(value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif value is None:
            self.out += b"N"
        elif isinstance(value, tuple):
            self._tuple(value)
        elif isinstance(value, Mapping):
            self._dict(value)
        elif isinstance(value, Sequence):
            self._list(value)
        else:
            raise TypeError(type(value))

    def _text(self, text: str) -> None:
        if self._refer(text):
            return
        raw = text.encode()
        self.out += b"X" + struct.pack("<I", len(raw)) + raw
        self._memoise(text)

    def _tuple(self, pair: tuple[object, ...]) -> None:
        assert len(pair) == 2
        for item in pair:
            self.value(item)
        self.out += b"\x86"

    def _list(self, items: Sequence[object]) -> None:
        self.out += b"]("
        for item in items:
            self.value(item)
        self.out += b"e"

    def _dict(self, pairs: Mapping[object, object]) -> None:
        if self._refer(id(pairs)):
            return
        self.out += b"}("
        for key, value in pairs.items():
            self.value(key)
            self.value(value)
        self.out += b"u"
        if id(pairs) in self.shared:
            self._memoise(id(pairs))

    def _refer(self, what: str | int) -> bool:
        place = self.places.get(what)
        if place is not None:
            self.out += bytes((0x68, place)) if place < 256 else b"j" + struct.pack("<I", place)
        return place is not None

    def _memoise(self, what: str | int) -> None:
        place = self.places[what] = len(self.places)
        self.out += bytes((0x71, place)) if place < 256 else b"r" + struct.pack("<I", place)


def encode(dump: object) -> bytes:
    """A dump (dict, or the bare list of torch 2.2) as PyTorch would write it."""
    encoder = Encoder()
    entries = dump.get("entries", []) if isinstance(dump, dict) else dump
    stacks = [entry["frames"] for entry in entries if isinstance(entry.get("frames"), list)]
    uses = Counter(id(frame) for stack in stacks for frame in stack if isinstance(frame, dict))
    encoder.shared = {frame for frame, count in uses.items() if count > 1} | {id(dump)}
    encoder.value(dump)
    return bytes(encoder.out + b".")


def _integer(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes((value,))
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)
