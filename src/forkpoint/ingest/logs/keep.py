"""Events, bounded: the first and last of each kind and rank, and how many were between."""

from collections import deque
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
    last: deque[Kept] | None = None
    """None as long as there are few."""
    left_out: int = 0


class Keeper:
    def __init__(self) -> None:
        self._shelves: dict[tuple[LogKind, int | None, int | None], _Shelf] = {}
        self._loud = 0
        self._quiet = 0

    def add(self, kept: Kept) -> None:
        """Keep it, or count it in place of another of its kind."""
        event = kept.event
        shelf = self._shelves.setdefault((event.kind, event.rank, event.speaker.task), _Shelf())
        each = _QUIET_EACH if event.kind in QUIET else _LOUD_EACH
        last = shelf.last
        if len(shelf.first) < each and self._has_room(event.kind):
            shelf.first.append(kept)
        elif len(shelf.first) == each and (last is None or len(last) < each) and self._has_room(event.kind):
            shelf.last = last or deque()
            shelf.last.append(kept)
        else:
            shelf.left_out += 1
            if last:
                last.popleft()
                last.append(kept)

    def kept(self) -> list[Kept]:
        """All, in the order of the log."""
        every = [kept for shelf in self._shelves.values() for kept in (*shelf.first, *(shelf.last or ()))]
        return sorted(every, key=lambda kept: kept.event.line)

    def left_out(self) -> Iterator[LeftOut]:
        for (kind, rank, _), shelf in self._shelves.items():
            if shelf.left_out:
                yield LeftOut(kind, rank, shelf.left_out)

    def _has_room(self, kind: LogKind) -> bool:
        if kind in QUIET:
            self._quiet += 1
            return self._quiet <= _QUIET_AT_MOST
        self._loud += 1
        return self._loud <= _LOUD_AT_MOST
