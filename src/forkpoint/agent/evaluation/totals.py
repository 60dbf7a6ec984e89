"""Runs -> totals."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from forkpoint.agent.evaluation.marks import Marks
from forkpoint.agent.evaluation.run import Run


@dataclass(frozen=True, slots=True)
class Share:
    """`right` of `asked`: runs whose truth does not say are not asked."""

    right: int
    asked: int

    @property
    def rate(self) -> float | None:
        return self.right / self.asked if self.asked else None


@dataclass(frozen=True, slots=True)
class Side:
    """The engine alone, or the model."""

    earliest: Share
    suspects: Share
    precision: float | None
    """Mean over runs."""
    site: Share


@dataclass(frozen=True, slots=True)
class Beside:
    """Runs in which one side is right and the other is not."""

    model_alone: int
    engine_alone: int


@dataclass(frozen=True, slots=True)
class Totals:
    runs: int
    engine: Side
    model: Side
    earliest: Beside
    suspects: Beside
    site: Beside
    claims: int
    supported: int
    contradicted: int
    unverifiable: int
    turned_away: int
    abstained: int
    ended_early: int
    verdicts_intact: int
    requests: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    """None: no price is known."""
    seconds: float
    engine_seconds: float

    @property
    def grounded(self) -> float | None:
        """Share of claims that the evidence bears out."""
        return self.supported / self.claims if self.claims else None


_Column = Callable[[Marks], bool | None]
_EARLIEST: _Column = attrgetter("earliest")
_SUSPECTS: _Column = attrgetter("suspects")
_SITE: _Column = attrgetter("site")


def total(runs: Sequence[Run]) -> Totals:
    costs = [run.usage.cost_usd for run in runs if run.usage.cost_usd is not None]
    return Totals(
        runs=len(runs),
        engine=_side([run.engine for run in runs]),
        model=_side([run.model for run in runs]),
        earliest=_beside(runs, _EARLIEST),
        suspects=_beside(runs, _SUSPECTS),
        site=_beside(runs, _SITE),
        claims=sum(run.claims.handed_in for run in runs),
        supported=sum(run.claims.supported for run in runs),
        contradicted=sum(run.claims.contradicted for run in runs),
        unverifiable=sum(run.claims.unverifiable for run in runs),
        turned_away=sum(run.claims.turned_away for run in runs),
        abstained=sum(run.abstained for run in runs),
        ended_early=sum(run.ended is not None for run in runs),
        verdicts_intact=sum(run.verdict_intact for run in runs),
        requests=sum(run.requests for run in runs),
        tool_calls=sum(run.tool_calls for run in runs),
        input_tokens=sum(run.usage.input_tokens for run in runs),
        output_tokens=sum(run.usage.output_tokens for run in runs),
        cost_usd=sum(costs) if costs else None,
        seconds=round(sum(run.seconds for run in runs), 3),
        engine_seconds=round(sum(run.engine_seconds for run in runs), 3),
    )


def _side(marks: Sequence[Marks]) -> Side:
    return Side(
        earliest=_share(map(_EARLIEST, marks)),
        suspects=_share(map(_SUSPECTS, marks)),
        precision=sum(m.precision for m in marks) / len(marks) if marks else None,
        site=_share(map(_SITE, marks)),
    )


def _share(marks: Iterable[bool | None]) -> Share:
    asked = [right for right in marks if right is not None]
    return Share(sum(asked), len(asked))


def _beside(runs: Sequence[Run], column: _Column) -> Beside:
    pairs = [(bool(column(run.model)), bool(column(run.engine))) for run in runs]
    return Beside(pairs.count((True, False)), pairs.count((False, True)))
