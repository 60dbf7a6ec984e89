"""Events, bounded: the first and last of each kind and rank, and how many were between."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from forkpoint.ingest.logs.events import LeftOut
from forkpoint.model.log import QUIET, LogEvent, LogKind

_LOUD_EACH = 25
_QUIET_EACH = 16
_LOUD_AT_MOST = 50_000
_QUIET_AT_MOST = 20_000


@dataclass(frozen=True, slots=True)
class Kept:
    event: LogEvent
    sure: bool
    """Its rank was printed by torch itself, not by a launcher that may count something else."""


@dataclass(slots=True)
class _Shelf:
    first: list[Kept] = field(default_factory=list)
    last: list[Kept] = field(default_factory=list)
    left_out: int = 0


@dataclass(slots=True)
class _Room:
    each: int
    """First and last events of a kind and rank, of either so many."""
    left: int


class Keeper:
    def __init__(self) -> None:
        self._shelves: dict[tuple[LogKind, int | None, int | None], _Shelf] = {}
        self._loud, self._quiet = _Room(_LOUD_EACH, _LOUD_AT_MOST), _Room(_QUIET_EACH, _QUIET_AT_MOST)
        self._lost = 0

    def add(self, kept: Kept) -> None:
        """Keep it, or count it in place of another of its kind."""
        event = kept.event
        room = self._quiet if event.kind in QUIET else self._loud
        key = (event.kind, event.rank, event.speaker.task)
        shelf = self._shelves.get(key)
        if shelf is None:
            if not room.left:
                self._lost += 1
                return
            shelf = self._shelves[key] = _Shelf()
        for part in (shelf.first, shelf.last):
            if len(part) < room.each and room.left:
                room.left -= 1
                part.append(kept)
                return
        shelf.left_out += 1
        if shelf.last:
            del shelf.last[0]
            shelf.last.append(kept)
        else:
            self._lost += 1

    def problem(self) -> str | None:
        """What is left out between the first and last of a kind and rank is repeats; what had no room is not."""
        if not self._lost:
            return None
        return f"holds more events than are kept: {self._lost} were left out. Give each node's log as a file of its own"

    def kept(self) -> list[Kept]:
        """All, in the order of the log."""
        every = [kept for shelf in self._shelves.values() for kept in (*shelf.first, *shelf.last)]
        return sorted(every, key=lambda kept: kept.event.line)

    def left_out(self) -> Iterator[LeftOut]:
        for (kind, rank, _), shelf in self._shelves.items():
            if shelf.left_out:
                yield LeftOut(kind, rank, shelf.left_out)
