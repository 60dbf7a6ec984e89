"""A model examined on recorded cases, one after the other."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from forkpoint.agent.budget import Account, Budget
from forkpoint.agent.case import Case
from forkpoint.agent.claim import Status
from forkpoint.agent.evaluation.known import KnownCase
from forkpoint.agent.evaluation.marks import Marks, answer_of_engine, answer_of_model, mark, says_nothing
from forkpoint.agent.evaluation.neutral import open_neutral, similar_without
from forkpoint.agent.hypothesis import Explanation
from forkpoint.agent.model import Model, Usage
from forkpoint.agent.talk import Hear, Talk
from forkpoint.agent.transcript import Record, TranscriptFile
from forkpoint.agent.workflow import explain
from forkpoint.errors import ForkpointError
from forkpoint.ingest import read
from forkpoint.pipeline import diagnose
from forkpoint.report.json_report import render_json

PATIENCE = 3
"""Runs in a row without a reply before giving up."""


class Unanswered(ForkpointError):
    """The endpoint does not reply; to ask it on would only take time."""


@dataclass(frozen=True, slots=True)
class Plan:
    model: Model
    budget: Budget
    """For each run."""
    repeat: int
    transcripts: Path | None
    """The folder they are written to, one of each run."""


@dataclass(frozen=True, slots=True)
class Claims:
    handed_in: int
    supported: int
    contradicted: int
    unverifiable: int

    @property
    def turned_away(self) -> int:
        """Not checked, as they cite what was never shown."""
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
    """Why it stopped before its end."""
    refused: tuple[str, ...]
    requests: int
    tool_calls: int
    usage: Usage
    seconds: float
    """From the first phase to the end: what the model adds to waiting."""
    engine_seconds: float
    """Of reading and judging."""
    verdict_intact: bool
    """The verdict is byte for byte what `diagnose` gives without a model."""


def evaluate(cases: Sequence[KnownCase], plan: Plan) -> Iterator[Run]:
    """Runs as they are done. Raises Unanswered."""
    silent = 0
    for known in cases:
        for number in range(1, plan.repeat + 1):
            run = _examine(known, number, plan)
            yield run
            silent = silent + 1 if run.ended is not None and not run.requests else 0
            if silent >= PATIENCE:
                raise Unanswered(f"no reply in {silent} runs in a row; the last: {run.ended}")


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
        transcript.write(Record("case", {}))  # the copy is gone afterwards
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
        supported=found.count(Status.SUPPORTED),
        contradicted=found.count(Status.CONTRADICTED),
        unverifiable=found.count(Status.UNVERIFIABLE),
    )
