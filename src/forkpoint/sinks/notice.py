"""What is sent to a service: a verdict in plain fields, small enough for a pipe, and passive data only.

The guard handles one inside a training process, so this file imports nothing of the engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_UNDECIDED: Final = "inconclusive"
_HEALTHY: Final = "healthy"


@dataclass(frozen=True, slots=True)
class NoticeOrigin:
    """What the verdict does not contain: who sends it, about which job."""

    told_by: str
    """`forkpoint run`."""
    host: str
    job: str | None = None
    evidence: str | None = None
    """The folder or files that `forkpoint diagnose` reads again."""


def origin_of(command: str, environ: Mapping[str, str], host: str, evidence: str | None = None) -> NoticeOrigin:
    """For a command that runs in the job's environment."""
    job = environ.get("FORKPOINT_JOB") or environ.get("SLURM_JOB_NAME") or None
    return NoticeOrigin(f"forkpoint {command}", host, job, evidence)


@dataclass(frozen=True, slots=True)
class Notice:
    cause: str
    action: str
    confidence: float
    is_likely: bool
    """Sure enough to act on."""
    suspects: tuple[int, ...]
    ranks: str
    """`rank 2 of 8`, or empty if no rank can be singled out."""
    headline: str
    summary: str
    at: str
    """UTC, `2026-11-15T01:18:27Z`: the last dated moment, else now."""
    fork: str
    """The same for incidents at the same fork, so that services can group them."""
    origin: NoticeOrigin
    sites: tuple[str, ...] = ()
    """`train.py:31 (why)`."""
    fix: str | None = None
    readings: tuple[str, ...] = ()
    """For an undecided verdict: each hypothesis, and what would decide it."""
    next: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    """Lines about earlier incidents at the same fork."""
    document: str = ""
    """The verdict's JSON, schema forkpoint.verdict/1."""
    markdown: str = ""
    """The report for tickets."""

    @property
    def is_decided(self) -> bool:
        return self.cause not in (_UNDECIDED, _HEALTHY)

    @property
    def is_healthy(self) -> bool:
        return self.cause == _HEALTHY

    @property
    def title(self) -> str:
        return self.headline if self.is_decided else f"Not decided: {self.headline}"

    def facts(self) -> tuple[tuple[str, str], ...]:
        """What every service shows below the title, as label and text. Texts quote input: each service must escape them."""
        decided = (
            ("cause", f"{self.cause}, confidence {self.confidence:.2f}"),
            ("do", self.action),
            ("suspects", self.ranks or "no rank can be singled out"),
        )
        undecided = (("cause", "the evidence does not decide it, and nobody is accused"),)
        told = [*(decided if self.is_decided else undecided)]
        told += [("where", site) for site in self.sites]
        told += [("fix", self.fix)] if self.fix and self.is_decided else []
        told += [("maybe", reading) for reading in self.readings]
        told += [("next", step) for step in self.next]
        told += [("seen", line) for line in self.seen]
        origin = self.origin
        told += [("job", origin.job)] if origin.job else []
        told += [("evidence", origin.evidence)] if origin.evidence else []
        return (*told, ("from", f"{origin.told_by} on {origin.host}, {self.at}"))
