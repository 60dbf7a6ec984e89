"""Kernel counters, read twice. They count since boot, so only the growth between two reads is about now."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forkpoint.doctor.system import System

INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Counter:
    before: int
    after: int

    @property
    def added(self) -> int:
        """None added where it was cleared in between."""
        return max(0, self.after - self.before)


def read_twice(system: System, paths: Iterable[str]) -> Mapping[str, Counter]:
    """By path, those that are there both times."""
    before = {path: value for path in paths if (value := read_number(system, path)) is not None}
    if not before:
        return {}
    system.pause(INTERVAL_S)
    after = {path: read_number(system, path) for path in before}
    return {path: Counter(before[path], value) for path, value in after.items() if value is not None}


def read_number(system: System, path: str) -> int | None:
    text = (system.read(path) or "").strip()
    return int(text) if text.removeprefix("-").isdecimal() else None
