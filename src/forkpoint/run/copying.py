"""The output of a process: passed on unchanged, and kept in a file."""

import os
import sys
from pathlib import Path
from threading import Thread
from typing import IO

_PIECE = 1 << 16


class Copying:
    """Starts at once. Neither a closed terminal nor a full disk stops the job."""

    def __init__(self, source: IO[bytes], target: int, file: Path) -> None:
        self._source, self._target = source, target
        self._file = file.open("wb", buffering=0)
        self._thread = Thread(target=self._copy, daemon=True, name=f"copying-{file.name}")
        self._thread.start()

    def finish(self, limit_s: float) -> None:
        """All writers have ended, so the end of the stream is near."""
        self._thread.join(limit_s)

    def _copy(self) -> None:
        passes = keeps = True
        with self._source, self._file:
            while piece := os.read(self._source.fileno(), _PIECE):
                passes = passes and _try_write(self._target, piece)
                keeps = keeps and _try_write(self._file.fileno(), piece)
        if not keeps:
            sys.stderr.write(f"forkpoint: {self._file.name}: could not be written to its end; the evidence is cut\n")


def _try_write(target: int, piece: bytes) -> bool:
    rest = memoryview(piece)
    try:
        while rest:
            rest = rest[os.write(target, rest) :]
    except OSError:
        return False
    return True
