"""Runs a model on recorded cases: runs, totals, and tables for people or JSON (schema forkpoint.eval/1) for programs."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from rich.table import Table

from forkpoint import __version__
from forkpoint.agent.case import ClaimStatus
from forkpoint.agent.evaluation.known import (
    KnownCase,
    Marks,
    answer_of_engine,
    answer_of_model,
    mark,
    open_neutral,
    says_nothing,
    similar_without,
)
from forkpoint.agent.hypothesis import Explanation
from forkpoint.agent.model import Account, Budget, Model, Usage
from forkpoint.agent.talk import Hear, Talk
from forkpoint.agent.transcript import TranscriptFile, TranscriptRecord
from forkpoint.agent.workflow import explain
from forkpoint.brief.case import Case
from forkpoint.errors import ForkpointError
from forkpoint.evidence import read
from forkpoint.pipeline import diagnose
from forkpoint.report.escape import escape
from forkpoint.report.json_report import render_json

# ---------------------------------------------------------------------------------------------------------------------
# A model on recorded cases, one after the other.

PATIENCE = 3
"""Runs in a row without a reply before giving up."""


class EndpointGone(ForkpointError):
    """The endpoint does not reply; there is no point in asking again."""


@dataclass(frozen=True, slots=True)
class Plan:
    model: Model
    budget: Budget
    """For each run."""
    repeat: int
    transcripts: Path | None
    """Folder for the transcripts, one per run."""


@dataclass(frozen=True, slots=True)
class Claims:
    handed_in: int
    supported: int
    contradicted: int
    unverifiable: int

    @property
    def turned_away(self) -> int:
        """Not checked, because they cite facts that were never shown."""
        return self.handed_in - self.supported - self.contradicted - self.unverifiable


@dataclass(frozen=True, slots=True)
class Run:
    """One case, once."""

    case: str
    number: int
    """Of the repetition, from 1."""
    engine: Marks
    model: Marks
    claims: Claims
    abstained: bool
    """It handed in nothing readable, or nothing at all although the case has a fault."""
    ended: str | None
    """Why it stopped early."""
    refused: tuple[str, ...]
    requests: int
    tool_calls: int
    usage: Usage
    seconds: float
    """From the first phase to the end: the time that the model adds."""
    engine_seconds: float
    """Of reading and judging."""
    verdict_intact: bool
    """The verdict is byte for byte the same as `diagnose` gives without a model."""


def evaluate(cases: Sequence[KnownCase], plan: Plan) -> Iterator[Run]:
    """Yields each run when it is done. Raises EndpointGone."""
    silent = 0
    for known in cases:
        for number in range(1, plan.repeat + 1):
            run = _examine(known, number, plan)
            yield run
            silent = silent + 1 if run.ended is not None and not run.requests else 0
            if silent >= PATIENCE:
                raise EndpointGone(f"no reply in {silent} runs in a row; the last: {run.ended}")


def _examine(known: KnownCase, number: int, plan: Plan) -> Run:
    began = time.monotonic()
    with open_neutral(known) as case:
        opened = time.monotonic()
        explanation = _explain(case, known, number, plan)
        ended = time.monotonic()
        alone = render_json(diagnose(read(case.paths), case.source))
        told = explanation.hypothesis
        empty = told is None or (says_nothing(told) and not known.truth.healthy)
        return Run(
            case=known.name,
            number=number,
            engine=mark(known.truth, answer_of_engine(case.verdict)),
            model=mark(known.truth, None if told is None or empty else answer_of_model(case, told)),
            claims=_count(explanation),
            abstained=empty,
            ended=explanation.ended,
            refused=explanation.refused,
            requests=explanation.requests,
            tool_calls=explanation.tool_calls,
            usage=explanation.usage,
            seconds=round(ended - opened, 3),
            engine_seconds=round(opened - began, 3),
            verdict_intact=render_json(case.verdict) == alone,
        )


def _explain(case: Case, known: KnownCase, number: int, plan: Plan) -> Explanation:
    name = known.name if plan.repeat == 1 else f"{known.name}-{number}"
    path = plan.transcripts / f"{name}.jsonl" if plan.transcripts else os.devnull
    with TranscriptFile(str(path)) as transcript:
        transcript.write(TranscriptRecord("case", {}))  # no paths: the copy is deleted afterwards
        talk = Talk(case, plan.model, Account(plan.budget), transcript, Hear(_nothing, _nothing))
        explanation = explain(talk, similar_without(known))
    if transcript.problem is not None:
        raise ForkpointError(transcript.problem)
    return explanation


def _nothing(_: str) -> None:
    pass


def _count(explanation: Explanation) -> Claims:
    found = [claim.status for claim in explanation.claims]
    return Claims(
        handed_in=len(explanation.hypothesis.claims) if explanation.hypothesis else 0,
        supported=found.count(ClaimStatus.SUPPORTED),
        contradicted=found.count(ClaimStatus.CONTRADICTED),
        unverifiable=found.count(ClaimStatus.UNVERIFIABLE),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Runs -> totals.


@dataclass(frozen=True, slots=True)
class Share:
    """`right` of `asked`, which counts only runs whose truth has an answer."""

    right: int
    asked: int

    @property
    def rate(self) -> float | None:
        return self.right / self.asked if self.asked else None


@dataclass(frozen=True, slots=True)
class ScoredSide:
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
class EvaluationTotals:
    runs: int
    engine: ScoredSide
    model: ScoredSide
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
        """Share of claims that the evidence supports."""
        return self.supported / self.claims if self.claims else None


_Column = Callable[[Marks], bool | None]
_EARLIEST: _Column = attrgetter("earliest")
_SUSPECTS: _Column = attrgetter("suspects")
_SITE: _Column = attrgetter("site")


def total(runs: Sequence[Run]) -> EvaluationTotals:
    costs = [run.usage.cost_usd for run in runs if run.usage.cost_usd is not None]
    return EvaluationTotals(
        runs=len(runs),
        engine=_side([run.engine for run in runs]),
        model=_side([run.model for run in runs]),
        earliest=_count_beside(runs, _EARLIEST),
        suspects=_count_beside(runs, _SUSPECTS),
        site=_count_beside(runs, _SITE),
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


def _side(marks: Sequence[Marks]) -> ScoredSide:
    return ScoredSide(
        earliest=_count_share(map(_EARLIEST, marks)),
        suspects=_count_share(map(_SUSPECTS, marks)),
        precision=sum(m.precision for m in marks) / len(marks) if marks else None,
        site=_count_share(map(_SITE, marks)),
    )


def _count_share(marks: Iterable[bool | None]) -> Share:
    asked = [right for right in marks if right is not None]
    return Share(sum(asked), len(asked))


def _count_beside(runs: Sequence[Run], column: _Column) -> Beside:
    pairs = [(bool(column(run.model)), bool(column(run.engine))) for run in runs]
    return Beside(pairs.count((True, False)), pairs.count((False, True)))


# ---------------------------------------------------------------------------------------------------------------------
# Runs and totals -> a table for people, JSON (schema forkpoint.eval/1) for programs.

SCHEMA = "forkpoint.eval/1"
_WORDS = {True: "right", False: "-", None: ""}


def render_results_json(plan: Plan, runs: Sequence[Run], totals: EvaluationTotals) -> str:
    told = {
        "schema": SCHEMA,
        "forkpoint": __version__,
        "model": escape(plan.model.name),
        "budget": asdict(plan.budget),
        "totals": {**asdict(totals), "grounded": totals.grounded},
        "runs": [_run(run) for run in runs],
    }
    return json.dumps(told, indent=2, allow_nan=False)


def _run(run: Run) -> dict[str, object]:
    told: dict[str, Any] = asdict(run)
    told["claims"]["turned_away"] = run.claims.turned_away
    told["ended"] = None if run.ended is None else escape(run.ended)
    told["refused"] = [escape(why) for why in run.refused]
    return told


def tell_run(run: Run) -> str:
    """One line of progress output."""
    claims = run.claims
    borne_out = f"{claims.supported} of {claims.handed_in} claims supported" if claims.handed_in else "no claims"
    ended = f"; ended early: {escape(run.ended)}" if run.ended is not None else ""
    return f"{borne_out}, {run.requests} requests, {run.seconds:.0f} s{ended}"


def runs_table(runs: Sequence[Run]) -> Table:
    """Cells are `right`, `-`, or empty if the truth has no answer."""
    table = Table(box=None, pad_edge=False)
    for column in ("case", "fork point", "engine", "suspects", "engine", "site", "engine"):
        table.add_column(column)
    for column in ("claims", "supported", "contradicted", "unverifiable", "requests", "tokens", "s"):
        table.add_column(column, justify="right")
    for run in runs:
        table.add_row(*_row(run))
    return table


def _row(run: Run) -> Iterator[str]:
    yield run.case if run.number == 1 else f"{run.case} ({run.number})"
    for mine, engines in (
        (run.model.earliest, run.engine.earliest),
        (run.model.suspects, run.engine.suspects),
        (run.model.site, run.engine.site),
    ):
        yield _WORDS[mine]
        yield _WORDS[engines]
    claims = run.claims
    tokens = run.usage.input_tokens + run.usage.output_tokens
    for number in (claims.handed_in, claims.supported, claims.contradicted, claims.unverifiable, run.requests, tokens):
        yield str(number)
    yield f"{run.seconds:.0f}"


def totals_table(totals: EvaluationTotals, model: str) -> Table:
    """The engine alone, the model, and the runs in which only one of them is right."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "engine alone", escape(model), "model alone right", "engine alone right"):
        table.add_column(column)
    rows = (
        ("fork point right", totals.engine.earliest, totals.model.earliest, totals.earliest),
        ("suspects exact", totals.engine.suspects, totals.model.suspects, totals.suspects),
        ("site line right", totals.engine.site, totals.model.site, totals.site),
    )
    for name, engine, mine, beside in rows:
        table.add_row(name, _share_text(engine), _share_text(mine), *_beside_texts(beside))
    table.add_row("suspects, precision", _precision(totals.engine), _precision(totals.model), "", "")
    return table


def tell_totals(totals: EvaluationTotals) -> str:
    grounded = "" if totals.grounded is None else f" ({totals.grounded:.0%})"
    cost = "" if totals.cost_usd is None else f", ${totals.cost_usd:.4f}"
    each = totals.seconds / totals.runs if totals.runs else 0.0
    checked = f"{totals.contradicted} contradicted, {totals.unverifiable} unverifiable"
    tokens = f"{totals.input_tokens:,} tokens in, {totals.output_tokens:,} out{cost}"
    lines = (
        f"claims: {totals.claims} handed in, {totals.supported} supported{grounded}, {checked}",
        f"not checked, because they cite facts that were never shown: {totals.turned_away}",
        f"runs: {totals.runs}, of which {totals.abstained} abstained and {totals.ended_early} ended early",
        f"verdict identical to the one without a model: {totals.verdicts_intact} of {totals.runs}",
        f"{totals.requests} requests, {totals.tool_calls} tool calls, {tokens}",
        f"{totals.seconds:.0f} s for the model ({each:.1f} s a run), {totals.engine_seconds:.1f} s for the engine",
    )
    return "\n".join(lines)


def _share_text(share: Share) -> str:
    return "" if share.rate is None else f"{share.right} of {share.asked} ({share.rate:.0%})"


def _beside_texts(beside: Beside) -> tuple[str, str]:
    return str(beside.model_alone), str(beside.engine_alone)


def _precision(side: ScoredSide) -> str:
    return "" if side.precision is None else f"{side.precision:.2f}"
