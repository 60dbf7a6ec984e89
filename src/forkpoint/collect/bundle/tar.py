"""A .tar.gz written from pieces that were packed elsewhere."""

import tarfile
import time
from collections.abc import Iterable
from tempfile import SpooledTemporaryFile
from typing import BinaryIO

from forkpoint.collect.bundle.work import LeftOut, Packed, pack

_IN_MEMORY = 64 << 20
_COPY = 1 << 20


class TarWriter:
    """Members owned by nobody, readable by their owner alone, all of one time: nothing tells who packed them."""

    def __init__(self, stream: BinaryIO, folder: str) -> None:
        """`folder`: for what does not fit in memory."""
        self._stream, self._folder = stream, folder
        self._time = int(time.time())

    def add(self, name: str, pieces: Iterable[Packed | LeftOut]) -> int | LeftOut:
        """The size of the member, which stands in front of it: so its pieces wait until all are there."""
        size = 0
        with SpooledTemporaryFile(_IN_MEMORY, dir=self._folder) as waiting:
            for piece in pieces:
                if isinstance(piece, LeftOut):
                    return piece
                waiting.write(piece.data)
                size += piece.size
            self._begin(name, size)
            waiting.seek(0)
            while data := waiting.read(_COPY):
                self._stream.write(data)
        self._stream.write(pack(bytes(-size % tarfile.BLOCKSIZE)))
        return size

    def add_whole(self, name: str, data: bytes) -> None:
        self._begin(name, len(data))
        self._stream.write(pack(data + bytes(-len(data) % tarfile.BLOCKSIZE)))

    def finish(self) -> None:
        self._stream.write(pack(bytes(2 * tarfile.BLOCKSIZE)))

    def _begin(self, name: str, size: int) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, self._time
        self._stream.write(pack(info.tobuf(tarfile.PAX_FORMAT)))
