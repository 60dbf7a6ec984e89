"""What a model hands in at the end, and what the engine says to each of its claims."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from forkpoint.agent.case import Case, Check, Ledger, Status, Wire
from forkpoint.agent.claims import AnyClaim
from forkpoint.agent.model import Usage
from forkpoint.model.verdict import Cause
from forkpoint.report.escape import escape

# ---------------------------------------------------------------------------------------------------------------------
# What a model hands in at the end, and what the engine made of it.


class Hypothesis(Wire):
    """The model's own answer, shown beside the verdict: it may be another one."""

    cause: Annotated[Cause | None, Field(strict=False)] = None
    """Default: the verdict's."""
    suspects: list[int] = Field(default_factory=list)
    earliest_group: str | None = None
    earliest_seq: int | None = None
    site_file: str | None = None
    site_line: int | None = None
    claims: list[AnyClaim] = Field(default_factory=list)
    opinion: str = ""
    """What happened, in your words."""
    why: str = ""
    """Why that value, or that rank, differed."""
    refuted_by: str = ""
    """What would prove it wrong."""
    missing_evidence: str = ""
    """What would decide."""
    confidence: float = 0.5


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    claim: AnyClaim
    check: Check

    @property
    def status(self) -> Status:
        return self.check.status


@dataclass(frozen=True, slots=True)
class Remedy:
    """A probe or fix to show beside the verdict's own."""

    kind: str
    """`probe` or `fix`."""
    title: str
    where: str | None
    patch: str
    trusted: bool
    """Made by the engine's catalogue. False: the model wrote it, and it was only checked to apply and to parse."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerSide:
    """One answer, and what the checks say of it."""

    says: str
    """`divergent-path of rank 3`."""
    speaks_for: tuple[str, ...]
    speaks_against: tuple[str, ...]
    replayed: bool | None
    """Replay explains the recorded end of the job by it; None: it could not be replayed."""


@dataclass(frozen=True, slots=True)
class BothAnswers:
    """The verdict and the model's answer side by side."""

    verdict: AnswerSide
    model: AnswerSide | None
    """None: its answer is the verdict's."""
    dissent: tuple[str, ...]
    """Plain sentences: where checked facts contradict the verdict, or speak for the other answer more. Empty: they do not."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is shown beside the verdict. Nothing in it was used to judge."""

    model: str
    hypothesis: Hypothesis | None
    """None: the model did not get so far."""
    claims: tuple[CheckedClaim, ...]
    comparison: BothAnswers | None
    """None where there is no hypothesis."""
    remedies: tuple[Remedy, ...]
    refused: tuple[str, ...]
    """What of its output was refused, and why, one line each."""
    ended: str | None
    """Why it stopped before its end: a budget, a dead endpoint. None: it came to its end."""
    requests: int
    tool_calls: int
    usage: Usage


# ---------------------------------------------------------------------------------------------------------------------
# A hypothesis -> what the engine says to each of its claims.

MAX_CLAIMS = 40
_CITED = 5
_MAX_ID = 20


@dataclass(frozen=True, slots=True)
class Checked:
    claims: tuple[CheckedClaim, ...]
    refused: tuple[str, ...]
    """Claims that were not checked, and why."""


def check_claims(case: Case, ledger: Ledger, hypothesis: Hypothesis) -> Checked:
    """Claims that cite what was never shown are turned away: who makes up evidence is not asked about the rest."""
    known = frozenset(ledger.ids)
    claims: list[CheckedClaim] = []
    refused: list[str] = []
    for number, claim in enumerate(hypothesis.claims[:MAX_CLAIMS], start=1):
        never_shown = sorted(set(claim.evidence) - known)
        if never_shown:
            cited = ", ".join(escape(one[:_MAX_ID]) for one in never_shown[:_CITED])
            refused.append(f"claim {number} was not checked: it cites {cited}, which was never shown")
        else:
            claims.append(CheckedClaim(claim, claim.check(case)))
    if len(hypothesis.claims) > MAX_CLAIMS:
        refused.append(f"{len(hypothesis.claims) - MAX_CLAIMS} claims beyond the first {MAX_CLAIMS} were not checked")
    return Checked(tuple(claims), tuple(refused))
