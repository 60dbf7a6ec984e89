"""Everything read about one incident, before any interpretation."""

from dataclasses import dataclass
from enum import StrEnum

from forkpoint.model.op import Stack
from forkpoint.model.trace import RankTrace, Tables


class LogKind(StrEnum):
    """What a log line that matters says."""

    WATCHDOG_TIMEOUT = "watchdog-timeout"
    GROUP_STATUS = "group-status"
    ASYNC_ERROR = "async-error"
    EXCEPTION = "exception"
    OUT_OF_MEMORY = "out-of-memory"
    KILLED = "killed"
    NETWORK = "network"
    RENDEZVOUS = "rendezvous"
    GIL_HELD = "gil-held"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    """NCCL begins and ends to make a communicator."""
    LEFT = "left"
    """Its process group was taken down in order: the program ended."""
    DUMPED = "dumped"
    """The rank was alive when dumps were asked for."""


FAILURES = frozenset(
    {
        LogKind.WATCHDOG_TIMEOUT,
        LogKind.ASYNC_ERROR,
        LogKind.EXCEPTION,
        LogKind.OUT_OF_MEMORY,
        LogKind.KILLED,
        LogKind.NETWORK,
        LogKind.RENDEZVOUS,
        LogKind.GIL_HELD,
    }
)
"""Kinds that tell of a failure. A program that ends in order does not, and dumps can be asked for at any time."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One line (or block) of a log that bears on the incident."""

    kind: LogKind
    file: str
    line: int
    rank: int | None
    """The rank it speaks of: mostly the one that printed it."""
    text: str
    """As printed, without control characters, shortened."""
    seq: int | None = None
    """Sequence number of the op it names."""
    stack: Stack = ()
    """Of an exception: innermost frame first."""


@dataclass(frozen=True, slots=True)
class LiveStack:
    """Where a rank's main thread was while the job hung."""

    rank: int
    file: str
    line: int
    stack: Stack


@dataclass(frozen=True, slots=True)
class Problem:
    """An input that could not be used, wholly or in part, and what to do about it."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class Capture:
    traces: tuple[RankTrace, ...]
    tables: Tables
    events: tuple[LogEvent, ...] = ()
    stacks: tuple[LiveStack, ...] = ()
    logs: tuple[tuple[str, int | None], ...] = ()
    """Log files read, with the rank each belongs to."""
    problems: tuple[Problem, ...] = ()
