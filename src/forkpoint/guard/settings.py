"""The guard's settings, from the environment (no code changes) or from `guard.start(...)`."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from forkpoint.live.children import split_sinks

SWITCH: Final = "FORKPOINT"
_OFF: Final = ("", "0", "off")
_RANKS_PER_S: Final = 10_000
"""Looks per second that one store serves, with six requests each: a fraction of a core. Larger jobs look less often."""


class Mode(StrEnum):
    OBSERVE = "observe"
    """Print what is wrong to rank 0's stderr. The job is left alone."""
    RAISE = "raise"
    """Also end the job with the verdict, long before the watchdog would."""
    DUMP = "dump"
    """Also write every rank's dump and stacks to a folder at once."""


@dataclass(frozen=True, slots=True)
class Settings:
    mode: Mode = Mode.OBSERVE
    every_s: float = 0.5
    """Between two looks at the recorder's counters: a look costs microseconds, and a mismatch must be reported within 5 s."""
    stall_s: float | None = None
    """How long nothing may move before a late rank is reported. None: half of the waiting group's own timeout, so that
    a person, or `raise`, has the other half."""
    folder: str = "forkpoint-guard"
    """Where `dump` writes."""
    source: str | None = None
    """The program's folder, for sites and fixes in the verdict. Without it sites come from stacks."""
    store: str | None = None
    """Where incidents are kept: a SQLite file or postgresql://... A child process writes."""
    notify: tuple[str, ...] = ()
    """Services that are notified of an alarm, from a separate process (docs/sinks.md)."""

    def interval_s(self, world_size: int) -> float:
        """Between two looks in a job of this size."""
        return max(self.every_s, world_size / _RANKS_PER_S)


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings | None:
    """None: the guard is not switched on. An invalid value is reported and ignored: nothing here may end a job."""
    switch = environ.get(SWITCH, "").strip().lower()
    if switch in _OFF:
        return None
    defaults = Settings()
    return Settings(
        mode=_mode(switch),
        every_s=_seconds(environ, "FORKPOINT_EVERY_S") or defaults.every_s,
        stall_s=_seconds(environ, "FORKPOINT_STALL_S"),
        folder=environ.get("FORKPOINT_DIR") or defaults.folder,
        source=environ.get("FORKPOINT_SOURCE") or None,
        store=environ.get("FORKPOINT_STORE") or None,
        notify=split_sinks(environ.get("FORKPOINT_NOTIFY")),
    )


def _mode(switch: str) -> Mode:
    if switch in frozenset(Mode):
        return Mode(switch)
    if switch not in ("1", "on", "true", "yes"):
        _complain(SWITCH, switch, f"1 or {', '.join(Mode)}")
    return Mode.OBSERVE


def _seconds(environ: Mapping[str, str], name: str) -> float | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 86400.0:
        _complain(name, text, "seconds, from 0.05 to 86400")
        return None
    return value


def _complain(name: str, value: str, wanted: str) -> None:
    sys.stderr.write(f"forkpoint guard: {name}={value!r} is invalid and ignored; it takes {wanted}\n")
