"""What detectors look at: the evidence, the timeline, where ranks part, and the facts worked out from them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Self, TypeVar, cast

from forkpoint.model.capture import Capture
from forkpoint.model.divergence import Divergence
from forkpoint.model.log import LogEvent
from forkpoint.model.op import Op, OpState
from forkpoint.model.timeline import Timeline

T = TypeVar("T")


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
    facts: dict[str, object] = field(default_factory=dict[str, object], compare=False, repr=False)
    """Answers of functions marked with `fact`, by the function's name."""

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


def fact(find: Callable[[Incident], T]) -> Callable[[Incident], T]:
    """Decorator: work this out once per incident and keep it there. For what several detectors ask."""
    name = f"{find.__module__}.{find.__qualname__}"

    @wraps(find)
    def find_once(incident: Incident) -> T:
        if name not in incident.facts:
            incident.facts[name] = find(incident)
        return cast("T", incident.facts[name])

    return find_once


def _is_overdue(op: Op) -> bool:
    return (
        op.state in (OpState.ENTERING, OpState.ABORTED)
        and op.timeout_ms > 0
        and op.completed_ns - op.created_ns > op.timeout_ms * 1_000_000
    )
