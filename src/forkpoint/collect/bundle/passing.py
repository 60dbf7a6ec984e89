"""Redacted evidence is read for the verdict while it is written to the archive: what is judged is what is packed."""

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from forkpoint.collect.bundle.tar import ArchiveMember
from forkpoint.errors import InputError
from forkpoint.ingest import read_stream
from forkpoint.ingest.files import SNIFF
from forkpoint.ingest.reading import Reading
from forkpoint.ingest.text import clean
from forkpoint.model.capture import Capture, Problem

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    Stream = io.BufferedReader[io.FileIO]


class Passing(io.RawIOBase):
    """Pieces as a stream; each is written to the archive when it is read."""

    def __init__(self, pieces: Iterator[bytes], member: ArchiveMember) -> None:
        self._pieces, self._member = pieces, member
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._member.write(piece)
            self._rest = memoryview(piece)
        target = memoryview(buffer)
        part = self._rest[: target.nbytes]
        self._rest = self._rest[len(part) :]
        target[: len(part)] = part
        return len(part)

    def pass_rest(self) -> None:
        """The archive also gets what the reader left unread."""
        for piece in self._pieces:
            self._member.write(piece)

    def buffered(self) -> "Stream":
        return io.BufferedReader(cast("io.FileIO", self), SNIFF)


def read_streams(streams: "Iterable[tuple[str, Stream]]") -> Capture:
    """Like `ingest.read`, for named streams: each is read before the next is opened."""
    reading = Reading()
    for name, stream in streams:
        try:
            read_stream(stream, name, reading)
        except InputError as error:
            reading.problems.append(Problem(name, clean(str(error).removeprefix(f"{name}: "))))
    reading.require(("the redacted evidence",))
    return reading.capture()
