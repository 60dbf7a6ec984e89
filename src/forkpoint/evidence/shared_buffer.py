"""Memory that a child fills and its parent empties. What the child wrote last is still there after it was killed.

A pipe would lose what the child has not yet flushed, or wake the parent for every file. Here the child wakes its parent only when
the buffer is full: it sends a byte through one pipe and waits for a byte from another. When the child ends, its pipe closes, and
the parent takes the rest.
"""

import mmap
import os
from typing import Final

from forkpoint.model.layout import U64

_ROOM: Final = 1 << 18
_BEGIN: Final = U64.size
"""The number of bytes in the buffer is stored before this offset, and written after them."""


class SharedBuffer:
    """Created before the fork; then each process keeps one side."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _BEGIN + _ROOM)
        self._full = os.pipe()
        self._emptied = os.pipe()

    def filling_side(self) -> "FillingSide":
        os.close(self._full[0])
        os.close(self._emptied[1])
        return FillingSide(self._memory, self._full[1], self._emptied[0])

    def emptying_side(self) -> "EmptyingSide":
        os.close(self._full[1])
        os.close(self._emptied[0])
        return EmptyingSide(self._memory, self._full[0], self._emptied[1])


class FillingSide:
    def __init__(self, memory: mmap.mmap, full: int, emptied: int) -> None:
        self._memory = memory
        self._full, self._emptied = full, emptied
        self._held = 0

    def write(self, data: bytes) -> None:
        end = self._held + len(data)
        if end > _ROOM:
            self._write_in_pieces(data)
            return
        self._memory[_BEGIN + self._held : _BEGIN + end] = data
        self._held = end
        U64.pack_into(self._memory, 0, end)

    def _write_in_pieces(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            if self._held == _ROOM:
                self.hand_over()
            piece, rest = rest[: _ROOM - self._held], rest[_ROOM - self._held :]
            end = self._held + len(piece)
            self._memory[_BEGIN + self._held : _BEGIN + end] = piece
            self._held = end
            U64.pack_into(self._memory, 0, end)

    def hand_over(self) -> None:
        """Waits until the parent has taken the content. Raises BrokenPipeError if it does not want more."""
        os.write(self._full, b"\0")
        if not os.read(self._emptied, 1):
            raise BrokenPipeError
        self._held = 0


class EmptyingSide:
    def __init__(self, memory: mmap.mmap, full: int, emptied: int) -> None:
        self._memory = memory
        self._full, self._emptied = full, emptied

    def take(self) -> tuple[bytes, bool]:
        """Waits until the buffer is full or handed over, or the child has ended. Returns its content, and whether more may come."""
        more = os.read(self._full, 1) != b""
        held = min(U64.unpack_from(self._memory)[0], _ROOM)
        taken = self._memory[_BEGIN : _BEGIN + held]
        U64.pack_into(self._memory, 0, 0)
        if more:
            os.write(self._emptied, b"\0")
        return taken, more

    def close(self) -> None:
        """Ends a child that wants to write more."""
        os.close(self._full)
        os.close(self._emptied)
        self._memory.close()
