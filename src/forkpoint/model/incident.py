"""What detectors look at."""

from dataclasses import dataclass
from typing import Self

from forkpoint.model.capture import Capture
from forkpoint.model.divergence import Divergence
from forkpoint.model.log import LogEvent
from forkpoint.model.op import Op, OpState
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
    outlived_timeout: bool
    """An op reads `completed` only because the dump asked, later than its timeout after it was issued."""

    @classmethod
    def of(cls, capture: Capture, timeline: Timeline, divergences: tuple[Divergence, ...]) -> Self:
        said: dict[int, list[LogEvent]] = {}
        for event in capture.events:
            if event.rank is not None:
                said.setdefault(event.rank, []).append(event)
        heard = frozenset(rank for _, rank in capture.logs if rank is not None) | said.keys()
        overdue = any(_is_overdue(p.op) for rank in timeline.entering for p in timeline.positions.get(rank, ()))
        return cls(capture, timeline, divergences, {r: tuple(events) for r, events in said.items()}, heard, overdue)

    @property
    def divergence(self) -> Divergence | None:
        return self.divergences[0] if self.divergences else None


def _is_overdue(op: Op) -> bool:
    return (
        op.state in (OpState.ENTERING, OpState.ABORTED)
        and op.timeout_ms > 0
        and op.completed_ns - op.created_ns > op.timeout_ms * 1_000_000
    )
