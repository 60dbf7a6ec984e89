"""The result of a diagnosis: the value from which every report is rendered."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from forkpoint.model.capture import InternalProblem, SetAside
from forkpoint.model.incident import Divergence

if TYPE_CHECKING:
    from forkpoint.model.picture import Picture, Quote


class Cause(StrEnum):
    DIVERGENT_PATH = "divergent-path"
    ORDER_INVERSION = "order-inversion"
    METADATA_MISMATCH = "metadata-mismatch"
    HOST_STALL = "host-stall"
    GPU_STALL = "gpu-stall"
    TRANSPORT = "transport"
    RANK_LOST = "rank-lost"
    NEVER_JOINED = "never-joined"
    STRAGGLER = "straggler"
    SILENT_CORRUPTION = "silent-corruption"
    HEALTHY = "healthy"
    INCONCLUSIVE = "inconclusive"


class Symptom(StrEnum):
    WATCHDOG_TIMEOUT = "watchdog-timeout"
    SILENT_HANG = "silent-hang"
    ERROR = "error"
    NO_HANG = "no-hang"
    NONE = "none"


class Action(StrEnum):
    FIX_CODE = "fix-code"
    FIX_CODE_OR_STORAGE = "fix-code-or-storage"
    FIX_CODE_OR_HARDWARE = "fix-code-or-hardware"
    REPLACE_NODE = "replace-node"
    REPLACE_OR_RETRY = "replace-or-retry"
    RAISE_TIMEOUT = "raise-timeout"
    INVESTIGATE = "investigate"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A fact the reader can open and check."""

    file: str
    rank: int | None
    where: str
    """`entry 8`, `line 31`, `pg_status`."""
    says: str


class Source(StrEnum):
    """Which kind of evidence a moment comes from."""

    RECORDER = "recorder"
    LOG = "log"
    KERNEL = "kernel"
    RAS = "ras"
    STACK = "stack"


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened, and when. Ranks that report the same thing on the same clock share a moment."""

    when: str | None
    """As the source prints it, for the first rank. None: the source gives no time."""
    until: str | None
    """For the last rank, if that is in another second."""
    bound: bool
    """It happened no later than `when`: its own line has no time, a later line of the file does."""
    utc: str | None
    """`2026-11-15T01:18:27Z`, if it is known how this clock relates to the clock of the dumps."""
    clock: str
    """Moments of one clock are in order; between hosts only as far as their clocks agree. Moments of different clocks cannot
    be compared."""
    source: Source
    kind: str
    """`completed`, `issued`, ... for the recorder; otherwise the kind of line or message."""
    ranks: tuple[int, ...]
    host: str | None
    says: str
    evidence: Evidence


NOT_DATED = "not dated"
"""The clock of moments without a time: they have no order."""


@dataclass(frozen=True, slots=True)
class Site:
    """The place in the user's source where ranks took different paths."""

    file: str
    line: int
    function: str
    condition: str | None = None
    why: str | None = None
    cohort: int | None = None


class Probe(Struct, frozen=True):
    """The smallest experiment that would decide the question."""

    title: str
    where: str | None = None
    patch: str | None = None


class Fix(Struct, frozen=True):
    title: str
    patch: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What one detector claims, and its evidence."""

    detector: str
    cause: Cause
    suspects: tuple[int, ...]
    confidence: float
    summary: str
    """One sentence a person can act on."""
    action: Action
    evidence: tuple[Evidence, ...]
    divergence: Divergence | None = None
    probes: tuple[Probe, ...] = ()
    fixes: tuple[Fix, ...] = ()
    next: tuple[str, ...] = ()
    """The exact commands that would raise the confidence."""
    headlines: tuple[str, ...] = ()
    """Versions of the claim as one plain sentence, the most detailed first: the first that fits becomes the headline."""


class Likelihood(StrEnum):
    LIKELY = "likely"
    """What the facts point to."""
    POSSIBLE = "possible"
    """Nothing excludes it."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One explanation of the incident that nothing contradicts, with what would decide it."""

    cause: Cause
    suspects: tuple[int, ...]
    """Who would be at fault. Empty: nobody in particular, or one of `sides`."""
    says: str
    """The explanation in one sentence."""
    decides: str
    """The exact command, or the evidence, that would confirm or exclude it."""
    likelihood: Likelihood = Likelihood.POSSIBLE
    alternatives: tuple[Cause, ...] = ()
    """Causes that this evidence cannot distinguish from `cause`."""
    sides: tuple[tuple[int, ...], ...] = ()
    """Sets of ranks; one of them is at fault, and nothing shows which."""
    supports: tuple[Evidence, ...] = ()
    against: tuple[Evidence, ...] = ()
    lacks: tuple[str, ...] = ()
    """Evidence that would be needed and was not given."""
    divergence: Divergence | None = None
    repair: str | None = None
    """The smallest change with which the recorded job would have continued, according to the replay; None: no recorded call
    could be replayed."""
    steps: tuple[str, ...] = ()
    """The replay, call by call."""
    plain: str = ""
    """`says` in a few words, without sequence numbers; empty if cause and ranks are enough."""
    asks: str = ""
    """`decides` in a few words: `a stack of rank 6`."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the job the evidence shows."""

    ranks: int
    """Size of the job, as far as it is known."""
    dumps: int
    logs: int
    stacks: int
    notes: tuple[str, ...] = ()
    """What is missing, cut or unusable."""
    set_aside: tuple[SetAside, ...] = ()
    """Files that were read but do not belong to the judged run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    symptom: Symptom | None
    cause: Cause
    confidence: float
    action: Action
    suspects: tuple[int, ...]
    """Global ranks, sorted. Empty when no rank can honestly be singled out."""
    summary: str
    """What happened, with operations, sequence numbers and sizes."""
    divergence: Divergence | None
    coverage: Coverage
    findings: tuple[Finding, ...] = ()
    """Strongest first; the verdict is based on the first."""
    sites: tuple[Site, ...] = ()
    next: tuple[str, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    """All explanations that survive, the best first. If the verdict is decided, the first is the verdict's own."""
    moments: tuple[Moment, ...] = ()
    """A timeline over all evidence, grouped by clock; the clock of most dumps first."""
    headline: str = ""
    """Who did what where, and why, in one plain sentence of at most 160 characters. Every report begins with it."""
    internal: tuple[InternalProblem, ...] = ()
    """Parts that failed; the rest was done without them."""
    quotes: "tuple[Quote, ...]" = field(default=(), compare=False, repr=False)
    """Lines of the source around sites and stacks, if the source was given. A report may leave them out."""
    picture: "Picture | None" = field(default=None, compare=False, repr=False)
    """What a page draws; only if a page was requested. It contains no further judgements."""

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """All evidence of all findings and hypotheses, without repeats, in the order of first use."""
        found = [e for f in self.findings for e in f.evidence]
        weighed = [e for h in self.hypotheses for e in (*h.supports, *h.against)]
        return tuple(dict.fromkeys((*found, *weighed)))

    @property
    def probes(self) -> tuple[Probe, ...]:
        return self.findings[0].probes if self.findings else ()

    @property
    def fixes(self) -> tuple[Fix, ...]:
        return self.findings[0].fixes if self.findings else ()
