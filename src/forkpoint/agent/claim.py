"""What a claim is: a sentence that the engine can check by asking itself again."""

from abc import abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.wire import Wire


class Status(StrEnum):
    SUPPORTED = "supported"
    """The evidence, or the source, shows it."""
    CONTRADICTED = "contradicted"
    """The evidence, or the source, shows otherwise."""
    UNVERIFIABLE = "unverifiable"
    """The evidence neither shows it nor rules it out."""


@dataclass(frozen=True, slots=True)
class Check:
    status: Status
    why: str
    """One sentence: what was found instead, or what would be needed."""
    facts: tuple[Fact, ...] = ()
    """What it was decided on."""

    @classmethod
    def unverifiable(cls, why: str) -> Self:
        return cls(Status.UNVERIFIABLE, why)


class Claim(Wire):
    """One file each in `claims/`, with a `kind` of its own."""

    evidence: list[str]
    """Ids of facts that were shown. Citing them proves nothing: the check does."""

    @abstractmethod
    def sentence(self) -> str:
        """As it is printed. Made of checked fields only: numbers, and names in backquotes."""

    @abstractmethod
    def check(self, case: Case) -> Check:
        """Asks the engine again, whatever was cited."""
