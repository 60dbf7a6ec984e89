"""Limits on what is gathered. What does not fit is noted, and the rest goes on."""

import time
from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True, slots=True)
class Limits:
    total_bytes: int = 4 << 30
    files: int = 20_000
    seconds: float = 300.0
    """For everything, from asking the first place to the last byte."""


class Meter:
    """Shared by all places, which are visited side by side."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = Lock()
        self._bytes = limits.total_bytes
        self._files = limits.files
        self._deadline = time.monotonic() + limits.seconds

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    @property
    def bytes_left(self) -> int:
        return max(0, self._bytes)

    def may_open(self) -> str | None:
        """Why not, or None. Call it once per file."""
        if self.seconds_left == 0.0:
            return f"not done after {self._limits.seconds:g} s (--seconds)"
        with self._lock:
            if not self._files:
                return f"more than {self._limits.files} files (--max-files)"
            if self._bytes <= 0:
                return f"more than {self._limits.total_bytes >> 20} MiB (--max-mib)"
            self._files -= 1
        return None

    def grant(self, size: int) -> int:
        """How many of these bytes may still be copied."""
        with self._lock:
            granted = max(0, min(size, self._bytes))
            self._bytes -= granted
        return granted
