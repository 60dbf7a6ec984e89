"""A rank's number of steps, in a memory-mapped file of eight bytes that the parent process reads."""

import mmap
import struct
from pathlib import Path


class StepFile:
    """Written by the rank."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._map: mmap.mmap | None = None
        self.steps = 0

    def open_for(self, rank: int) -> None:
        path = self._folder / f"steps_rank_{rank}"
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self.set(self.steps)

    def set(self, steps: int) -> None:
        self.steps = steps
        if self._map is not None:
            struct.pack_into("<q", self._map, 0, steps)


def read_steps(folder: Path, rank: int) -> int:
    """0 if the rank has made none yet."""
    try:
        return struct.unpack("<q", (folder / f"steps_rank_{rank}").read_bytes())[0]
    except (OSError, struct.error):
        return 0
