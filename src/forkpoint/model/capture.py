"""Everything read about one incident, before any interpretation."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from forkpoint.model.entries import Tables
from forkpoint.model.frames import Lines
from forkpoint.model.log import Ending, LogEvent, PrintedLine
from forkpoint.model.op import Stack
from forkpoint.model.traces import Traces
from forkpoint.model.values import NO_VALUES, Values
from forkpoint.model.world import RankPlace

UNNAMED_THREAD = "another thread"


@dataclass(frozen=True, slots=True)
class LiveStack:
    """Where a rank was while the job hung."""

    rank: int
    file: str
    line: int
    stack: Stack
    """The main thread's stack. If that thread waits for another one, the other one's frames are put on top."""
    thread: str | None = None
    """The name of that other thread."""
    seen: int = 1
    """How often the file shows this stack."""
    others: tuple[tuple[str, Stack], ...] = ()
    """Other threads that run the program's own code: name and stack."""
    on_top: int = 0
    """How many of the innermost frames are that other thread's."""


class Remark(Struct, frozen=True):
    """A message from outside the job: from a host's kernel, or from NCCL's RAS. Evidence, never a verdict by itself."""

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
    """The Xid that explains the message. None: there is no Xid, or only follow-on ones."""
    pids: frozenset[int] = frozenset()
    """Processes it names, as the host numbers them. A container may number them differently."""
    missing: tuple[int, ...] = ()
    """Ranks that did not answer RAS, numbered inside a communicator of `size` ranks."""
    size: int | None = None


class StepCount(Struct, frozen=True):
    """How many calls one rank had made in a group when it finished a training step."""

    file: str
    group: str
    step: int
    rank: int
    calls: int


class Problem(Struct, frozen=True):
    """An input that could not be used, wholly or in part, and what to do about it."""

    file: str
    text: str


class InternalProblem(Struct, frozen=True):
    """A bug in forkpoint: a part of the diagnosis raised an exception."""

    part: str
    error: str
    """The kind of exception."""
    trace: str

    @property
    def says(self) -> str:
        return f"internal problem: {self.part} failed ({self.error}); the rest was done without it"


BROKE_ON_IT = "forkpoint failed on it (see the internal problem); the other files are judged without it"


OF_ANOTHER_RUN = "from another run"
"""How the reason begins if a file is set aside as another run's, and not because a newer one replaces it."""


class SetAside(Struct, frozen=True):
    """A file that was read but is not judged, and the proof that it does not belong to the others."""

    file: str
    rank: int | None
    why: str
    behind: int = 0
    """Calls by which the judged dump of the same rank and run goes beyond this one."""


class OtherWay(Struct, frozen=True):
    """A rank's last line, from a place of the source that ranks which wait in a call have not passed."""

    rank: int
    place: Lines
    """Of that call."""
    how: str
    """How it went on without them: `had left the loop`, `was past the call`, `took the branch at line 30, not the call`."""
    file: str
    line: int
    text: str


class OnTheWay(Struct, frozen=True):
    """A rank's last line, which those who wait in a call printed as often, and from which the program comes to that call next."""

    rank: int
    place: Lines
    """Of that call."""
    file: str
    line: int
    text: str


class LeftProgram(Struct, frozen=True):
    """A rank's last line, from which every way through the program ends the process without another call."""

    rank: int
    failed: bool
    """It ends with an exit code that reports a failure: `sys.exit(1)`."""
    file: str
    line: int
    text: str


class SourceFacts(Struct, frozen=True):
    """What the source says of the places at which ranks were seen."""

    fixed_sizes: frozenset[Lines] = frozenset()
    """Calls whose data has the same size on all ranks."""
    own_sizes: frozenset[Lines] = frozenset()
    """Calls whose data has a size that depends on the rank's own data."""
    of_whole_job: frozenset[Lines] = frozenset()
    """Calls of all ranks, not of a group of some."""
    ops: frozenset[str] = frozenset()
    """All communication calls that the program makes by itself."""
    own_way: frozenset[Lines] = frozenset()
    """Calls that a rank makes only under a condition on its own data or number."""
    on_one_rank: frozenset[Lines] = frozenset()
    """Of these, calls under a condition that holds on a single rank, such as `rank == 0`."""
    own_order: frozenset[Lines] = frozenset()
    """Calls made once per element of something, such as a set of names, whose order differs between processes."""
    other_ways: tuple[OtherWay, ...] = ()
    on_the_way: tuple[OnTheWay, ...] = ()
    left: tuple[LeftProgram, ...] = ()


NO_SOURCE = SourceFacts()


@dataclass(frozen=True, slots=True)
class Capture:
    traces: Traces
    tables: Tables
    events: tuple[LogEvent, ...] = ()
    stacks: tuple[LiveStack, ...] = ()
    unanswered: tuple[tuple[str, int], ...] = ()
    """(file, rank): the rank was asked to write its stack into this file and did not; other ranks did."""
    logs: tuple[tuple[str, int | None], ...] = ()
    """Log files read, each with its rank, if it has one."""
    empty_logs: tuple[tuple[str, int], ...] = ()
    """Empty log files whose name or folder gives a rank: they show that the rank exists, and nothing else."""
    sizes: frozenset[int] = frozenset()
    """Numbers of ranks of the job, as logs print them."""
    cut_logs: frozenset[str] = frozenset()
    """Logs that end within a line: copied while they grew, or cut. What they do not mention proves nothing."""
    log_ends: Mapping[str, Ending] = field(default_factory=dict[str, Ending])
    """How each log ends, by file."""
    printed: Mapping[str, tuple[PrintedLine, ...]] = field(default_factory=dict[str, tuple[PrintedLine, ...]])
    """What the program printed at the beginning and the end of each log, by file."""
    remarks: tuple[Remark, ...] = ()
    places: tuple[RankPlace, ...] = ()
    steps: tuple[StepCount, ...] = ()
    values: Values = NO_VALUES
    problems: tuple[Problem, ...] = ()
    nameless_stacks: tuple[str, ...] = ()
    """Files with the stack of a process whose rank is unknown."""
    set_aside: tuple[SetAside, ...] = ()
    internal: tuple[InternalProblem, ...] = ()
    """What failed while the evidence was read."""
    attempt: int = 0
    """Which attempt is judged, if the job was restarted."""
    source: SourceFacts = NO_SOURCE
    may_mix_attempts: bool = False
    """There are logs of several attempts, and the dumps do not say which attempt they are from: a restart overwrites dumps, so they
    may be from another attempt than the logs that are judged.
    """
