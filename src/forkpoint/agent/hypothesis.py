"""What a model hands in at the end, and what the engine made of it."""

from dataclasses import dataclass

from forkpoint.agent.claim import Check, Status
from forkpoint.agent.claims import AnyClaim
from forkpoint.agent.model import Usage
from forkpoint.agent.wire import Wire


class Hypothesis(Wire):
    """The model's own answer, kept apart from the verdict."""

    opinion: str
    """Why it happened, in its own words. Shown as opinion."""
    earliest_group: str | None
    earliest_seq: int | None
    suspects: list[int]
    site_file: str | None
    site_line: int | None
    claims: list[AnyClaim]
    confidence: float
    missing_evidence: str
    """What would decide."""


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
class Explanation:
    """What is shown beside the verdict. Nothing in it was used to judge."""

    model: str
    hypothesis: Hypothesis | None
    """None: the model did not get so far."""
    claims: tuple[CheckedClaim, ...]
    remedies: tuple[Remedy, ...]
    refused: tuple[str, ...]
    """What of its output was refused, and why, one line each."""
    ended: str | None
    """Why it stopped before its end: a budget, a dead endpoint. None: it came to its end."""
    requests: int
    tool_calls: int
    usage: Usage
