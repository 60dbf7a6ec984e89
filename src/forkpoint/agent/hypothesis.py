"""What a model hands in at the end, and how the engine checks each of its claims."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from forkpoint.agent.case import ClaimCheck, ClaimStatus, Ledger, Wire
from forkpoint.agent.claims import AnyClaim
from forkpoint.agent.model import Usage
from forkpoint.brief.case import Case
from forkpoint.model.verdict import Cause
from forkpoint.report.escape import escape

# ---------------------------------------------------------------------------------------------------------------------
# What a model hands in at the end, and the result of the checks.


class ModelHypothesis(Wire):
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
    check: ClaimCheck

    @property
    def status(self) -> ClaimStatus:
        return self.check.status


@dataclass(frozen=True, slots=True)
class Remedy:
    """A probe or fix, shown beside the verdict's own."""

    kind: str
    """`probe` or `fix`."""
    title: str
    where: str | None
    patch: str
    trusted: bool
    """The engine made it. False: the model wrote it; we only checked that it applies and parses."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerSide:
    """One answer, with the checks for and against it."""

    says: str
    """`divergent-path of rank 3`."""
    speaks_for: tuple[str, ...]
    speaks_against: tuple[str, ...]
    replayed: bool | None
    """Replay reproduces the recorded end of the job with this cause; None: it could not be replayed."""


@dataclass(frozen=True, slots=True)
class BothAnswers:
    """The verdict and the model's answer side by side."""

    verdict: AnswerSide
    model: AnswerSide | None
    """None: it gives the same answer as the verdict."""
    dissent: tuple[str, ...]
    """Sentences on where checked facts contradict the verdict, or favour the model's answer. Empty: nowhere."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is shown beside the verdict. Nothing in it was used to judge."""

    model: str
    hypothesis: ModelHypothesis | None
    """None: the model did not get that far."""
    claims: tuple[CheckedClaim, ...]
    comparison: BothAnswers | None
    """None if there is no hypothesis."""
    remedies: tuple[Remedy, ...]
    refused: tuple[str, ...]
    """Parts of the model's output that were refused, and why, one line each."""
    ended: str | None
    """Why it stopped early: a budget, a dead endpoint. None: it completed."""
    requests: int
    tool_calls: int
    usage: Usage


# ---------------------------------------------------------------------------------------------------------------------
# Checking the claims of a hypothesis.

MAX_CLAIMS = 40
_CITED = 5
_MAX_ID = 20


@dataclass(frozen=True, slots=True)
class Checked:
    claims: tuple[CheckedClaim, ...]
    refused: tuple[str, ...]
    """Claims that were not checked, and why."""


def check_claims(case: Case, ledger: Ledger, hypothesis: ModelHypothesis) -> Checked:
    """A claim that cites a fact that was never shown is refused unchecked: its evidence is made up."""
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
