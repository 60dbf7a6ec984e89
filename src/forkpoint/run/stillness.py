"""Waiting until the evidence is complete: bounded, and only as long as something is still being written."""

import os
import time
from pathlib import Path

from forkpoint.live.stall import Stillness

_QUIET_S = 1.5
"""torch writes a dump in one piece, within milliseconds of opening its file; a shared disk tells of it a second later."""
_POLL_S = 0.25


def wait_until_still(folder: Path, limit_s: float) -> bool:
    """False: files below it still change. A file that changed a moment ago counts as being written."""
    until = time.monotonic() + limit_s
    files = Stillness(folder_state(folder), time.monotonic())
    while files.see(folder_state(folder), time.monotonic()) < min(_QUIET_S, limit_s):
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_S)
    return True


def folder_state(folder: Path) -> tuple[int, int]:
    """How many files there are, and how many bytes: times of different machines' clocks cannot be compared."""
    count = size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.stat(os.path.join(parent, name)).st_size  # noqa: PTH116, PTH118 one per rank, several times a second
            except OSError:  # replaced just now
                continue
            count += 1
    return count, size
