"""How verdicts compare with the truth: case by case, and over all of them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from forkpoint.lab.case_folder import CaseFolder
from forkpoint.lab.fault import Truth
from forkpoint.model.verdict import Cause, Verdict

RIGHT_ENOUGH = 0.9
"""The share of right verdicts that the project promises for the lab."""


class Mark(StrEnum):
    RIGHT = "right"
    """The cause and the suspects are answers that the truth allows."""
    UNNAMED = "unnamed"
    """The cause is right, but not all ranks that could be named are."""
    INCONCLUSIVE = "inconclusive"
    """It says that it does not know, although it could be known."""
    WRONG = "wrong"
    ACCUSED = "accused"
    """A rank is named that no answer of the truth names. The worst there is, whatever the cause."""


@dataclass(frozen=True, slots=True)
class Scored:
    name: str
    truth: Truth
    verdict: Verdict
    mark: Mark


@dataclass(frozen=True, slots=True)
class Score:
    cases: tuple[Scored, ...]

    @property
    def counts(self) -> dict[Mark, int]:
        found = Counter(case.mark for case in self.cases)
        return {mark: found[mark] for mark in Mark}

    @property
    def is_good(self) -> bool:
        """Nobody innocent accused, and nearly all right."""
        counts = self.counts
        return not counts[Mark.ACCUSED] and counts[Mark.RIGHT] >= RIGHT_ENOUGH * len(self.cases)

    @property
    def confusion(self) -> dict[tuple[Cause, Cause], int]:
        """(best cause of the truth, cause of the verdict) -> cases."""
        return dict(Counter((case.truth.cause[0], case.verdict.cause) for case in self.cases))


def score(verdicts: Iterable[tuple[CaseFolder, Verdict]]) -> Score:
    return Score(tuple(Scored(c.name, c.truth, v, mark(c.truth, v)) for c, v in verdicts))


def mark(truth: Truth, verdict: Verdict) -> Mark:
    guilty = {rank for answer in truth.suspects for rank in answer}
    if set(verdict.suspects) - guilty:
        return Mark.ACCUSED
    if verdict.cause in truth.cause:
        return Mark.RIGHT if verdict.suspects in truth.suspects else Mark.UNNAMED
    return Mark.INCONCLUSIVE if verdict.cause is Cause.INCONCLUSIVE else Mark.WRONG
