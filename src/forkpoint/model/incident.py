"""Where ranks stopped agreeing, where each of them was, and what detectors look at."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from typing import Protocol, Self, TypeVar, cast

from msgspec import Struct

from forkpoint.model.capture import Capture
from forkpoint.model.log import LogEvent
from forkpoint.model.op import Op, OpState, Stack
from forkpoint.model.timeline import Timeline
from forkpoint.model.world import ProcessGroup


class Role(StrEnum):
    """What a cohort does at the divergence. Neutral: only a finding says `suspect`."""

    WAITING = "waiting"
    AHEAD = "ahead"
    BEHIND = "behind"
    ELSEWHERE = "elsewhere"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Cohort:
    """Ranks that behaved the same at one slot."""

    ranks: tuple[int, ...]
    role: Role
    op: str | None = None
    """None: these ranks issued nothing here."""
    sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    state: OpState | None = None
    stack: Stack | None = None
    thread: str | None = None
    where: str | None = None
    """What is known of ranks that issued nothing here: `in mesh_dp seq 51`, `no dump`."""


class PartingKind(StrEnum):
    """How ranks disagree at a slot."""

    METADATA = "metadata"
    """Members issued different operations, or the same one with sizes or dtypes that do not match."""
    VOLUME = "volume"
    """The members of an all_to_all send another number of elements than they receive."""
    MESSAGE = "message"
    """The two ends of a channel disagree on a message."""
    ABSENCE = "absence"
    """Some wait in the slot, others have not reached it."""
    STUCK = "stuck"
    """All members have issued the same op, and it does not finish."""
    CYCLE = "cycle"
    """Ranks wait for each other in different slots."""


class Parting(Struct, frozen=True):
    """A slot at which members of one group, or the two ends of a channel, disagree."""

    kind: PartingKind
    group: ProcessGroup
    channel: tuple[int, int] | None
    seq: int
    sides: tuple[tuple[int, ...], ...]
    """Ranks that did the same there, the largest side first."""
    odd: tuple[int, ...] = ()
    """The ranks that differ, if the comparison itself shows it and no majority vote is needed."""


class Shift(Struct, frozen=True):
    """One side is off by a number of ops: its n-th op is the other side's (n + by)-th."""

    ranks: tuple[int, ...]
    """The side that is off."""
    by: int
    """Positive: how many they skipped. Negative: how many extra ones they issued."""
    since: int
    """The first slot in which the two sides made different calls."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The earliest slot where cohorts part: the fork point."""

    how: PartingKind
    group: ProcessGroup
    channel: tuple[int, int] | None
    """(source, destination) as global ranks, for p2p."""
    seq: int | None
    """Where ranks first disagreed, judged also by stacks, timing and counts. None: the evidence no longer shows it."""
    first_visible_seq: int | None
    """The first slot in which recorded metadata or presence differ."""
    hang_seq: int | None
    """The slot in which ranks wait; None when nothing hangs."""
    cohorts: tuple[Cohort, ...]
    odd: tuple[int, ...]
    """The ranks that differ from the rest, if a majority or the history shows which. Not yet suspects."""
    sides: tuple[tuple[int, ...], ...]
    shift: Shift | None = None
    cycle: tuple[int, ...] = ()
    """Ranks that wait for each other in a ring."""
    left_order: bool = False
    """The ring exists because a rank skipped or replaced an op, not because it issued the same ops in another order."""
    is_permuted: bool = False
    """In a ring: every rank has issued all ops in which the others wait. Only the order differs."""
    unknown: tuple[int, ...] = ()
    """Members, and possible members, of which the evidence does not show what they did in this slot."""

    @property
    def kind(self) -> str:
        return "p2p" if self.channel else "collective"


T = TypeVar("T")


class HasFacts(Protocol):
    @property
    def facts(self) -> dict[str, object]: ...


Subject = TypeVar("Subject", bound=HasFacts)


@dataclass(frozen=True, slots=True)
class Incident:
    capture: Capture
    timeline: Timeline
    divergences: tuple[Divergence, ...]
    """The first is the fork point; the others are further disagreements."""
    said: dict[int, tuple[LogEvent, ...]]
    """Log events by rank."""
    heard: frozenset[int]
    """Ranks that have a log of their own, or lines in a shared one."""
    outlived_timeout: bool
    """A pending op reads `completed`, but at a time later than its timeout after it was issued."""
    facts: dict[str, object] = field(default_factory=dict[str, object], compare=False, repr=False)
    """Cached results of functions decorated with `fact`, by the function's name."""

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


def fact(find: Callable[[Subject], T]) -> Callable[[Subject], T]:
    """Decorator: caches the result on the incident (or timeline), for what several stages or detectors ask."""
    name = f"{find.__module__}.{find.__qualname__}"

    @wraps(find)
    def find_once(subject: Subject) -> T:
        if name not in subject.facts:
            subject.facts[name] = find(subject)
        return cast("T", subject.facts[name])

    return find_once


def _is_overdue(op: Op) -> bool:
    return (
        op.state in (OpState.ENTERING, OpState.ABORTED)
        and op.timeout_ms > 0
        and op.completed_ns - op.created_ns > op.timeout_ms * 1_000_000
    )
