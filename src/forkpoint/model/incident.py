"""What detectors look at."""

from dataclasses import dataclass
from typing import Self

from forkpoint.model.capture import Capture
from forkpoint.model.divergence import Divergence
from forkpoint.model.log import LogEvent
from forkpoint.model.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Incident:
    capture: Capture
    timeline: Timeline
    divergences: tuple[Divergence, ...]
    """The first is the fork point; later ones are what else parts."""
    said: dict[int, tuple[LogEvent, ...]]
    """What each rank's log says, by rank."""
    heard: frozenset[int]
    """Ranks that have a log, or lines in a common one."""

    @classmethod
    def of(cls, capture: Capture, timeline: Timeline, divergences: tuple[Divergence, ...]) -> Self:
        said: dict[int, list[LogEvent]] = {}
        for event in capture.events:
            if event.rank is not None:
                said.setdefault(event.rank, []).append(event)
        heard = frozenset(rank for _, rank in capture.logs if rank is not None) | said.keys()
        return cls(capture, timeline, divergences, {r: tuple(events) for r, events in said.items()}, heard)

    @property
    def divergence(self) -> Divergence | None:
        return self.divergences[0] if self.divergences else None
