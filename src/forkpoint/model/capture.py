"""Everything read about one incident, before any interpretation."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from forkpoint.model.entries import Tables
from forkpoint.model.log import Ending, LogEvent
from forkpoint.model.op import Stack
from forkpoint.model.traces import Traces
from forkpoint.model.values import NO_VALUES, Values
from forkpoint.model.world import Place


@dataclass(frozen=True, slots=True)
class LiveStack:
    """Where a rank was while the job hung."""

    rank: int
    file: str
    line: int
    stack: Stack
    """Its main thread's; where that waits for another thread, with that thread's frames inside it."""
    thread: str | None = None
    """The name of that other thread."""
    seen: int = 1
    """How often the file shows this stack."""
    others: tuple[tuple[str, Stack], ...] = ()
    """Its other threads that run code of the program, by name."""


@dataclass(frozen=True, slots=True)
class Remark:
    """What a machine said beside the job: its kernel, or NCCL's RAS. Evidence, never a verdict by itself."""

    file: str
    line: int
    host: str | None
    bus_id: str | None
    """The GPU or device it is about."""
    says: str
    kind: str = ""
    """What the kernel reported (`xid`, `oom-kill`, ...); `ras` for NCCL's RAS."""
    when: str | None = None
    """As printed: a date, or seconds since boot."""
    xid: int | None = None
    """The number that explains it; None where all of it only follows from something else, or there is none."""
    pids: frozenset[int] = frozenset()
    """Processes it names, by the host's numbers. A container may use others."""
    missing: tuple[int, ...] = ()
    """Ranks that did not answer RAS, counted inside a communicator of `size` ranks."""
    size: int | None = None


@dataclass(frozen=True, slots=True)
class StepCount:
    """How many calls a group had had on one rank when that rank ended a training step."""

    file: str
    group: str
    step: int
    rank: int
    calls: int


@dataclass(frozen=True, slots=True)
class Problem:
    """An input that could not be used, wholly or in part, and what to do about it."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class InternalProblem:
    """A part of the diagnosis that broke, for a reason that lies in forkpoint."""

    part: str
    error: str
    """The kind of exception."""
    trace: str

    @property
    def says(self) -> str:
        return f"internal problem: {self.part} broke ({self.error}), and the rest stands without it"


BROKE_ON_IT = "forkpoint broke on it (see the internal problem); the others are judged without it"


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file that was read and is not judged, and what proves that it does not belong to the rest."""

    file: str
    rank: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Capture:
    traces: Traces
    tables: Tables
    events: tuple[LogEvent, ...] = ()
    stacks: tuple[LiveStack, ...] = ()
    unanswered: tuple[tuple[str, int], ...] = ()
    """Files into which a rank was asked to write its stack, and which are empty while other ranks wrote theirs."""
    logs: tuple[tuple[str, int | None], ...] = ()
    """Log files read, with the rank each belongs to."""
    empty_logs: tuple[tuple[str, int], ...] = ()
    """Logs that hold nothing, with the rank that their name or place gives: the rank exists, and nothing else is known from them."""
    cut_logs: frozenset[str] = frozenset()
    """Logs that end within a line: copied while they grew, or cut. What they do not mention proves nothing."""
    log_ends: Mapping[str, Ending] = field(default_factory=dict[str, Ending])
    """How each log ends, by file."""
    remarks: tuple[Remark, ...] = ()
    places: tuple[Place, ...] = ()
    steps: tuple[StepCount, ...] = ()
    values: Values = NO_VALUES
    problems: tuple[Problem, ...] = ()
    nameless_stacks: tuple[str, ...] = ()
    """Files with a stack of a process whose rank nothing tells."""
    set_aside: tuple[SetAside, ...] = ()
    internal: tuple[InternalProblem, ...] = ()
    """What broke while it was read."""
    attempt: int = 0
    """Of a job that was restarted, the attempt that is judged."""
    may_mix_attempts: bool = False
    """Logs of several attempts were given and the dumps name none: they may be of another attempt than the logs that are judged,
    since a restart overwrites the dumps of the attempt before.
    """
