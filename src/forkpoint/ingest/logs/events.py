"""The whole of what one log says."""

from dataclasses import dataclass

from forkpoint.ingest.live_stacks.threads import RankStacks
from forkpoint.model.capture import Problem
from forkpoint.model.log import NO_ENDING, Ending, LogEvent, LogKind


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Events beyond those kept."""

    kind: LogKind
    rank: int | None
    count: int


@dataclass(frozen=True, slots=True)
class LogReading:
    """All that one log says."""

    events: tuple[LogEvent, ...]
    """In the order of the log."""
    speakers: frozenset[int]
    """Global ranks that its lines name as theirs, whatever the file is called. Silence in a log proves nothing."""
    first_time: str | None
    last_time: str | None
    lines: int
    bytes: int
    ending: Ending = NO_ENDING
    stacks: tuple[RankStacks, ...] = ()
    """Of threads, as programs and debuggers print them. Without a rank where nothing says whose they are."""
    left_out: tuple[LeftOut, ...] = ()
    problems: tuple[Problem, ...] = ()
