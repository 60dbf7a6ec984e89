"""A .tar.gz, packed by threads while the next piece is read."""

import hashlib
import os
import tarfile
import time
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import BinaryIO

from forkpoint.collect.bundle.deflate import pack

_IN_MEMORY = 64 << 20
_COPY = 1 << 20
_THREADS_AT_MOST = 8


class Member:
    """One file of the archive, while it is written."""

    def __init__(self, waiting: "SpooledTemporaryFile[bytes]", pool: ThreadPoolExecutor, ahead: int) -> None:
        """`ahead`: pieces that may wait for being packed."""
        self._waiting, self._pool, self._ahead = waiting, pool, ahead
        self._packing: deque[Future[bytes]] = deque()
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, piece: bytes) -> None:
        self._packing.append(self._pool.submit(pack, piece))
        self._hash.update(piece)
        self.size += len(piece)
        while len(self._packing) > self._ahead:
            self._waiting.write(self._packing.popleft().result())

    def finish(self) -> None:
        while self._packing:
            self._waiting.write(self._packing.popleft().result())

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


class TarWriter:
    """Members owned by nobody, readable by their owner alone, all of one time: nothing tells who packed them."""

    def __init__(self, stream: BinaryIO, folder: str) -> None:
        """`folder`: for what does not fit in memory."""
        self._stream, self._folder = stream, folder
        self._time = int(time.time())
        self._threads = min(_THREADS_AT_MOST, len(os.sched_getaffinity(0)))
        self._pool = ThreadPoolExecutor(self._threads)

    @contextmanager
    def member(self, name: str) -> Generator[Member]:
        """Its size stands in front of it, so its pieces wait until all are there. None is added if this is left by an
        exception.
        """
        with SpooledTemporaryFile(_IN_MEMORY, dir=self._folder) as waiting:
            member = Member(waiting, self._pool, 2 * self._threads)
            yield member
            member.finish()
            self._begin(name, member.size)
            waiting.seek(0)
            while data := waiting.read(_COPY):
                self._stream.write(data)
        self._stream.write(pack(bytes(-member.size % tarfile.BLOCKSIZE)))

    def add_whole(self, name: str, data: bytes) -> None:
        self._begin(name, len(data))
        self._stream.write(pack(data + bytes(-len(data) % tarfile.BLOCKSIZE)))

    def finish(self) -> None:
        self._stream.write(pack(bytes(2 * tarfile.BLOCKSIZE)))

    def close(self) -> None:
        """Its threads end."""
        self._pool.shutdown()

    def _begin(self, name: str, size: int) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, self._time
        self._stream.write(pack(info.tobuf(tarfile.PAX_FORMAT)))
