"""The same search with ripgrep, where it is installed: several times as fast.

It gets the literals as arguments and the log as its standard input; nothing from a log or its name reaches a command
line. What it finds is where to look, never what to believe.
"""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import BinaryIO

from forkpoint.ingest.live_stacks.in_logs import MARKS
from forkpoint.ingest.logs.patterns import anchors

WORTH_IT = 1 << 25
"""Starting another process costs more than it saves on smaller logs."""
_MEMORY = 1 << 27
_MANY, _SPARSE = 20_000, 2_000
"""A find every 2000 bytes: where there are more, looking at each costs more than the search saves."""
_OPTIONS = (
    "--no-config", "--no-messages", "--fixed-strings", "--case-sensitive", "--text", "--encoding=none", "--no-mmap",
    "--byte-offset", "--line-number", "--no-filename", "--no-heading", "--color=never", "--threads=1",
    "--max-columns=1",  # where a line is, not what it says: it may be long
)  # fmt: skip


class RipgrepFailed(Exception):
    """It ended with an error, or finds too much: the log is read without it."""


@cache
def ripgrep() -> str | None:
    return shutil.which("rg")


def reopened(stream: BinaryIO) -> int | None:
    """A descriptor of its own for a regular file of some size; None for anything else."""
    name = getattr(stream, "name", None)
    if not isinstance(name, str) or not hasattr(stream, "fileno"):
        return None
    try:
        ours = os.fstat(stream.fileno())
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    theirs = os.fstat(descriptor)
    same = (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)
    if same and stat.S_ISREG(theirs.st_mode) and theirs.st_size >= WORTH_IT:
        return descriptor
    os.close(descriptor)
    return None


class Ripgrep:
    """A search that runs while the log is read for other things. Gives the lines with anchors and marks of stacks, which may be hits."""

    def __init__(self, program: str, descriptor: int) -> None:
        wanted = [argument for text in (*anchors(), *MARKS) for argument in ("-e", text.decode())]
        self._process = subprocess.Popen(  # noqa: S603 - fixed arguments; the log is its input only
            [program, *_OPTIONS, *wanted, "-"],
            stdin=descriptor,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        _limit_memory(self._process.pid)

    def lines(self) -> Iterator[tuple[int, int]]:
        """The number of each line found, and where it begins."""
        assert self._process.stdout is not None
        for count, answer in enumerate(self._process.stdout):
            number, _, rest = answer.partition(b":")
            offset = rest.partition(b":")[0]
            if not (number.isdigit() and offset.isdigit()):
                raise RipgrepFailed
            if count > _MANY and int(offset) < count * _SPARSE:
                raise RipgrepFailed
            yield int(number), int(offset)
        if self._process.wait() not in {0, 1}:
            raise RipgrepFailed

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()


def _limit_memory(pid: int) -> None:
    """It holds the longest line in memory, and a log may be one line."""
    if sys.platform == "linux":
        import resource  # noqa: PLC0415 - not on every system

        resource.prlimit(pid, resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
