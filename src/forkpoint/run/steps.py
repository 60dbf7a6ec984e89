"""How far training came, as its logs tell: `step 120`, `iter: 120/5000`, `global_step=120`.

Only compared with the same number of another attempt of the same job, to see whether that one came further.
"""

import io
import re
from collections.abc import Iterable
from pathlib import Path

_STEP = re.compile(rb"\b(?:global_)?(?:step|iter(?:ation)?)s?\b\W{0,3}(\d{1,12})(?!\d|\.\d)", re.IGNORECASE)
_TAIL = 1 << 20
"""Bytes from the end of each log: what came last is what counts."""


def find_last_step(logs: Iterable[str]) -> int | None:
    return max((int(number) for log in logs for number in _STEP.findall(_tail(log))), default=None)


def _tail(log: str) -> bytes:
    try:
        with Path(log).open("rb") as file:
            file.seek(-min(_TAIL, file.seek(0, io.SEEK_END)), io.SEEK_END)
            return file.read(_TAIL)
    except OSError:  # it came from an archive, or is gone
        return b""
