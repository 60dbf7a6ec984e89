"""The nouns of a rehearsal, frozen. They travel between processes and into files as JSON."""

import json
import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from forkpoint.model.world import ProcessGroup, name_ranks
from forkpoint.rehearse.paths import SeenFork

ORDER_VARIABLE: Final = "FORKPOINT_REHEARSE"
"""Path of the order file, set for every rank of a calm run and of a trial."""

HASH_SEED: Final = "PYTHONHASHSEED"
"""Key in a trial's settings: the disturbed rank gets another hash seed, so it must be a new process."""
RESUMED: Final = "older version"
"""Key in the facts of a checkpoint that a second run reads: the previous version, or "" if there is none."""
OLDER: Final = ".forkpoint-older"
"""Folder in the job's folder where the calm run keeps overwritten versions."""

NOTED_STEPS: Final = 2
"""Calls of modules are noted only for so many steps: there are many of them."""

_SHORT_S: Final = 20.0
_SHORT_BUSY_S: Final = 60.0
_SHORT_CPU_S: Final = 10.0
"""Of each rank. Four ranks on two free cores need 20 s for that."""

T = TypeVar("T")


# ---------------------------------------------------------------------------------------------------------------------
# What a job uses: recorded in every rank of the calm run.


class UseKind(StrEnum):
    LOADER = "loader"
    """Batches of a torch DataLoader."""
    READ = "read"
    """A tensor's value read by Python: `.item()`, `.tolist()`, `.numpy()`, `bool()`, `float()`, `int()`."""
    FORWARD = "forward"
    """The outermost call of a module while gradients are recorded."""
    BACKWARD = "backward"
    GUARDED = "guarded"
    """A call inside `try`."""
    EXISTS = "exists"
    """A check whether a file exists."""
    LISTING = "listing"
    """The names in a folder."""
    WRITE = "write"
    """A file opened for writing, or saved by torch."""
    LOAD = "load"
    """A checkpoint read by torch."""
    CLOCK = "clock"
    DRAW = "draw"
    """A number from a random stream that the whole process shares."""
    SIGNAL = "signal"
    """A signal that the program handles itself."""
    POLL = "poll"
    """A poll, such as `Event.is_set`, that was answered with yes."""
    THREAD = "thread"
    """A thread of the program starts a piece of work: a new thread, a task of a pool, an item of a queue."""
    MESSAGE = "message"
    """Something put into the store of the job."""
    GENERATOR = "generator"
    """A generator of the user."""
    FILTER = "filter"
    """A filter over plain data."""
    MASK = "mask"
    """Elements of a tensor selected by a mask."""
    ROOM = "room"
    """A question how much of a disk or memory is left."""


@dataclass(frozen=True, slots=True)
class CodeSite:
    """A place in the user's source."""

    file: str
    """Relative to the folder of the job."""
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Use:
    """One rank's use of one rank-local thing at one place."""

    kind: UseKind
    site: CodeSite
    what: str
    """The function, path or exception: distinguishes uses at the same place."""
    count: int
    values: tuple[float, ...] = ()
    """The first few that were read, for comparison between ranks."""
    facts: dict[str, str] = field(default_factory=dict[str, str])
    """Details that perturbations need."""

    @property
    def key(self) -> tuple[str, str, int, str]:
        return (self.kind, self.site.file, self.site.line, self.what)


@dataclass(frozen=True, slots=True)
class RankUses:
    rank: int
    world: int
    steps: int
    batches: int
    uses: tuple[Use, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    """Members of each process group this rank belongs to."""
    longest_pause_s: float = 0.0
    """Between two steps."""
    cpu_s: float = 0.0

    @property
    def lines(self) -> frozenset[tuple[str, str, int]]:
        """The source lines at which the rank uses something of its own. Not what: each may have its own files."""
        return frozenset((use.kind, use.site.file, use.site.line) for use in self.uses if use.site.file)


@dataclass(frozen=True, slots=True)
class Calm:
    """The undisturbed run."""

    ranks: tuple[RankUses, ...]
    seconds: float
    complete: bool
    """The job ran to its end by itself."""
    again: tuple[RankUses, ...] = ()
    """What a second run in the same folder used, if there was one."""

    @property
    def world(self) -> int:
        return len(self.ranks)

    @property
    def is_short(self) -> bool:
        """Short enough to run to its end in each trial: a difference may show only there. On a busy machine CPU time decides."""
        cpu_s = max((told.cpu_s for told in self.ranks), default=0.0)
        is_busy = cpu_s <= _SHORT_CPU_S and self.seconds <= _SHORT_BUSY_S
        return self.complete and (self.seconds <= _SHORT_S or is_busy)

    def uses(self, kind: UseKind, *, again: bool = False) -> dict[tuple[str, str, int, str], dict[int, Use]]:
        """Place -> rank -> use, in source order. `again`: in the second run."""
        found: dict[tuple[str, str, int, str], dict[int, Use]] = {}
        for told in self.again if again else self.ranks:
            for use in told.uses:
                if use.kind is kind:
                    found.setdefault(use.key, {})[told.rank] = use
        return dict(sorted(found.items()))


# ---------------------------------------------------------------------------------------------------------------------
# What is done to the job.


@dataclass(frozen=True, slots=True)
class TrialTarget:
    """Something in the job that a perturbation can disturb."""

    site: CodeSite | None
    """None: no place in the source, as with a hash seed."""
    ranks: tuple[int, ...]
    """Ranks that have it."""
    what: str = ""
    """As `Use.what`."""
    occurrences: int = 1
    """How often it occurred in the calm run, on the rank with the fewest."""
    settings: dict[str, str] = field(default_factory=dict[str, str])
    """For `install`."""
    label: str = ""
    """For people: which loader, which file."""
    per_step: int = 1
    """How often it occurs before each step of the optimizer: more than once if gradients are accumulated."""
    together: tuple[int, ...] = ()
    """Other ranks that are disturbed in the same way: they read the same data."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of the job with one rank disturbed in one way."""

    number: int
    kind: str
    rank: int
    target: TrialTarget
    at: int
    """At which occurrence on that rank, from 0."""
    seed: int

    @property
    def ranks(self) -> tuple[int, ...]:
        """All that are disturbed."""
        return tuple(sorted((self.rank, *self.target.together)))

    @property
    def name(self) -> str:
        place = f" at {self.target.site}" if self.target.site else ""
        return f"{self.kind}{place}{f' ({self.target.label})' if self.target.label else ''}, {name_ranks(self.ranks)}"


class RunMode(StrEnum):
    CALM = "calm"
    TRIAL = "trial"
    FAKE = "fake"


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The instructions to the ranks of one run, passed in a file."""

    mode: RunMode
    folder: str
    """Where ranks write their results."""
    roots: tuple[str, ...]
    """Folders of the user's source."""
    trial: Trial | None = None
    other: int = -1
    """The rank whose path is compared with that of the disturbed one."""
    cpu: bool = False
    world: int = 0
    """World size of the simulated job, in mode `fake`."""
    ranks: tuple[int, ...] = ()
    """In mode `fake`, the ranks that run: process n is the n-th of them."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Written by the disturbed rank when the perturbation first had an effect."""

    rank: int
    says: str
    site: CodeSite | None
    step: int
    when: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Left:
    """Written by a rank of a trial when its program ends."""

    rank: int
    error: str
    """The exception that ended it; "" if it ended normally."""
    groups: tuple[ProcessGroup, ...]


# ---------------------------------------------------------------------------------------------------------------------
# How it ended.


class TrialOutcome(StrEnum):
    AGREES = "agrees"
    """All ranks continued, or the job stopped with a clear error."""
    PARTS = "parts"
    """Ranks made different calls, or some wait forever."""
    NOT_REACHED = "not reached"
    """The perturbation had no effect."""


@dataclass(frozen=True, slots=True)
class VerifiedFix:
    """The trial once more, with the proposed fix applied to a copy of the source."""

    fix: str
    outcome: TrialOutcome
    says: str


@dataclass(frozen=True, slots=True)
class TrialResult:
    trial: Trial
    outcome: TrialOutcome
    says: str
    """One sentence: what the ranks did."""
    seconds: float
    effect: Effect | None = None
    fork: SeenFork | None = None
    """Where the disturbed rank took another path than an undisturbed one."""
    verdict: dict[str, Any] | None = None
    """As printed by `diagnose --json`."""
    evidence: str = ""
    """The folder with the evidence; "" if there is none."""
    verified: VerifiedFix | None = None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    command: tuple[str, ...]
    seed: int
    calm: Calm
    plan: tuple[Trial, ...]
    """Everything that could be tried, in order."""
    results: tuple[TrialResult, ...]
    seconds: float
    skipped: tuple[str, ...] = ()
    """Kinds that cannot happen to this job, and why, in words."""

    @property
    def parts(self) -> tuple[TrialResult, ...]:
        return tuple(result for result in self.results if result.outcome is TrialOutcome.PARTS)


# ---------------------------------------------------------------------------------------------------------------------
# To files and back.


def write_value(path: Path, value: object) -> None:
    """Atomic: readers see all of it or nothing."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.write_text(json.dumps(msgspec.to_builtins(value)), encoding="utf-8")
    partial.replace(path)


def read_value(path: Path, kind: type[T]) -> T | None:
    """None: the file does not exist, or is not of this type."""
    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), kind)
    except (OSError, ValueError):
        return None
