"""The encoding in which PyTorch writes flight recorder dumps, byte for byte.

torch::jit::Pickler, protocol 2: strings are memoised by value, stack frames that occur more than once by identity, the
dump itself at the end, and nothing else. Containers are always filled in one go. Integers that need more than 32 bits take eight bytes.
"""

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One per place in the source, as in PyTorch: written once, then referred to."""

    name: str
    filename: str
    line: int


Value = str | int | float | bool | None | Frame | tuple["Value", "Value"] | list["Value"] | dict[str, "Value"]

_CONSTANTS = {None: b"N", True: b"\x88", False: b"\x89"}


class Pickler:
    """Writes one dump; remembers where things lie that differ from rank to rank."""

    def __init__(self, stacks: Iterable[Iterable[Frame]] = ()) -> None:
        """`stacks` are all that will be written: how often a frame occurs decides how it is written."""
        self.out = bytearray(b"\x80\x02")
        self.long_offsets: list[int] = []
        """Where the eight bytes of each long integer begin. In a dump these are the times."""
        self.string_offsets: dict[str, int] = {}
        """Where the text of each string begins."""
        self._uses = Counter(frame for stack in stacks for frame in stack)
        self._memo: dict[str | Frame, int] = {}

    @property
    def memo_size(self) -> int:
        return len(self._memo)

    def begin_dict(self) -> None:
        self.out += b"}("

    def end_dict(self) -> None:
        self.out += b"u"

    def finish(self) -> bytes:
        self._put(self.memo_size)
        self.out += b"."
        return bytes(self.out)

    def write(self, value: Value) -> None:
        match value:
            case str():
                self._write_string(value)
            case bool() | None:
                self.out += _CONSTANTS[value]
            case int():
                self._write_int(value)
            case float():
                self.out += b"G" + struct.pack(">d", value)
            case Frame():
                self._write_frame(value)
            case tuple():
                self.write(value[0])
                self.write(value[1])
                self.out += b"\x86"
            case list():
                self.out += b"]("
                for item in value:
                    self.write(item)
                self.out += b"e"
            case dict():
                self._write_dict(value)

    def _write_dict(self, value: dict[str, Value]) -> None:
        self.begin_dict()
        for key, item in value.items():
            self._write_string(key)
            self.write(item)
        self.end_dict()

    def _write_string(self, text: str) -> None:
        if text in self._memo:
            self._get(self._memo[text])
            return
        encoded = text.encode()
        self.out += b"X" + struct.pack("<I", len(encoded))
        self.string_offsets[text] = len(self.out)
        self.out += encoded
        self._remember(text)

    def _write_frame(self, frame: Frame) -> None:
        if frame in self._memo:
            self._get(self._memo[frame])
            return
        self._write_dict({"name": frame.name, "filename": frame.filename, "line": frame.line})
        if self._uses[frame] > 1:
            self._remember(frame)

    def _write_int(self, value: int) -> None:
        if 0 <= value < 1 << 8:
            self.out += b"K" + value.to_bytes(1, "little")
        elif 0 <= value < 1 << 16:
            self.out += b"M" + value.to_bytes(2, "little")
        elif -(1 << 31) <= value < 1 << 31:
            self.out += b"J" + value.to_bytes(4, "little", signed=True)
        else:
            self.out += b"\x8a\x08"
            self.long_offsets.append(len(self.out))
            self.out += value.to_bytes(8, "little", signed=True)

    def _remember(self, key: str | Frame) -> None:
        index = self.memo_size
        self._put(index)
        self._memo[key] = index

    def _put(self, index: int) -> None:
        self.out += b"q" + index.to_bytes(1, "little") if index < 1 << 8 else b"r" + index.to_bytes(4, "little")

    def _get(self, index: int) -> None:
        self.out += b"h" + index.to_bytes(1, "little") if index < 1 << 8 else b"j" + index.to_bytes(4, "little")
