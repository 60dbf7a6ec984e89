"""One log, of one rank or of all of them, as what it says."""

import io
import lzma
import mmap
import os
import zlib
from typing import TYPE_CHECKING, BinaryIO, cast

from forkpoint.ingest.logs.events import LogReading
from forkpoint.ingest.logs.heard import Heard
from forkpoint.ingest.logs.reader import Reader
from forkpoint.ingest.logs.ripgrep import Ripgrep, RipgrepFailed, reopened, ripgrep
from forkpoint.ingest.logs.scan import CHUNK, LineFinder, read_chunks

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_END = 1 << 16


def read_log(source: bytes | mmap.mmap | BinaryIO, file: str, rank: int | None) -> LogReading:
    """All that a log says. `rank` is the file's, where it is known; a line's own `[rankN]:` goes before it."""
    stream = _as_stream(source)
    program = ripgrep()
    descriptor = reopened(stream) if program else None
    if program is None or descriptor is None:
        return _read_alone(stream, file, rank)
    try:
        return _read_with_ripgrep(stream, Ripgrep(program, descriptor), file, rank)
    except RipgrepFailed:
        stream.seek(0)
        return _read_alone(stream, file, rank)
    finally:
        os.close(descriptor)


def _read_alone(stream: BinaryIO, file: str, rank: int | None) -> LogReading:
    heard = Heard(once=not stream.seekable(), rank=rank)
    reader = Reader(file, rank, heard)
    finder = LineFinder()
    read, newlines, last = 0, 0, b"\n"
    cut = None
    try:
        for chunk in read_chunks(stream, CHUNK):
            count, hits = finder.hits(chunk)
            reader.feed(chunk, count, hits)
            heard.feed(chunk)
            read += len(chunk)
            newlines += count
            last = chunk
        heard.finish(stream, reader.world)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        cut = f"cannot be read beyond byte {read} ({error}); what stands before it was used"
    return reader.finish(newlines + (not last.endswith(b"\n")), read, cut)


def _read_with_ripgrep(stream: BinaryIO, search: Ripgrep, file: str, rank: int | None) -> LogReading:
    """While ripgrep searches, the lines are counted and the speakers heard."""
    heard = Heard(once=False, rank=rank)
    reader = Reader(file, rank, heard)
    try:
        read, newlines = _count(stream, heard)
        stream.seek(max(0, read - _END))
        end = stream.read(_END)
        heard.feed(end.partition(b"\n")[2] if read > _END else end)
        reader.feed_from(stream, search.lines())
        heard.finish(stream, reader.world)
    finally:
        search.close()
    return reader.finish(newlines + (not end.endswith(b"\n")), read, None)


def _count(stream: BinaryIO, heard: Heard) -> tuple[int, int]:
    """Bytes and newlines. Some pieces go to `heard`, cut where lines begin and end."""
    buffer = bytearray(CHUNK)
    finder = LineFinder()
    read = newlines = 0
    while size := cast("io.BufferedReader", stream).readinto(buffer):
        newlines += finder.count_newlines(memoryview(buffer)[:size])
        if heard.wants_next():
            first = 0 if read == 0 else buffer.find(b"\n") + 1
            heard.feed(bytes(buffer[first : buffer.rfind(b"\n", 0, size) + 1]))
        else:
            heard.skip(size)
        read += size
    return read, newlines


class _Mapped(io.RawIOBase):
    """A memory map as a stream, so that one way of reading serves all."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        piece = self._data[self._place : self._place + memoryview(buffer).nbytes]
        memoryview(buffer)[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._place = offset + (0, self._place, len(self._data))[whence]
        return self._place

    def seekable(self) -> bool:
        return True


def _as_stream(source: bytes | mmap.mmap | BinaryIO) -> BinaryIO:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    if isinstance(source, mmap.mmap):
        return io.BufferedReader(_Mapped(source))
    return source
