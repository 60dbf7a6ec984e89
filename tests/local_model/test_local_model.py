"""A real model, small and mostly wrong, on every recorded case: the verdict stands, its errors are marked, and it ends.

Not part of the suite, as it takes half an hour: `make test-model`. What it shows is that the parts fit together with a model
that nobody scripted. It says nothing of how good a model can be.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from cases import CASES, load_cases
from forkpoint.agent.case import ClaimStatus
from forkpoint.agent.evaluation import read_known
from forkpoint.agent.evaluation.known import open_neutral, similar_without
from forkpoint.agent.model import Account, Budget
from forkpoint.agent.talk import Hear, Talk
from forkpoint.agent.transcript import Replayed, TranscriptFile, TranscriptRecord, read_transcript
from forkpoint.agent.workflow import explain
from forkpoint.cli import main
from local_model.recheck import is_true
from local_model.serve import NAME, missing, served

pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]

BUDGETS = {
    "brief": Budget(requests=8, tool_calls=1, tokens=1_700, seconds=20, facts=2),
    "roomy": Budget(requests=12, tool_calls=4, tokens=20_000, seconds=120, facts=3),
}
"""Brief: all cases in half an hour on two cores; two requests to read with, one for the hypothesis. Roomy: a few that come to
their end."""
LATE_S = 30.0
"""After its time is up a request is cancelled; on a machine with other work that, too, takes a while."""
NUMBERS = [case.number for case in load_cases()]
RUNS = [*((number, "brief") for number in NUMBERS), *((number, "roomy") for number in NUMBERS[::32])]
EACH = pytest.mark.parametrize(("number", "budget"), RUNS, ids=[f"{budget}-{number}" for number, budget in RUNS])


@dataclass(frozen=True, slots=True)
class Evaluated:
    folder: Path
    runs: dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def evaluated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """All runs of which a test was chosen, once. MODEL_OUT: the folder to keep what was said in."""
    chosen = {tuple(item.callspec.params.values()) for item in request.session.items if hasattr(item, "callspec")}
    folder = Path(os.environ.get("MODEL_OUT") or tmp_path_factory.mktemp("model"))
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    with served() as url:
        for name, budget in BUDGETS.items():
            numbers = [number for number, its in RUNS if its == name and (number, its) in chosen]
            told = evaluate(url, numbers, budget, folder / name) if numbers else []
            runs |= {(run["case"], name): run for run in told}
    return Evaluated(folder, runs)


def evaluate(url: str, numbers: list[str], budget: Budget, folder: Path) -> list[dict[str, Any]]:
    given = {name: limit for name, limit in asdict(budget).items() if limit is not None}
    limits = [part for name, limit in given.items() for part in (f"--max-{name.replace('_', '-')}", str(limit))]
    model = ["--model", f"openai-compatible:{NAME}", "--style", "json", "--endpoint", url]
    assert main(["eval", str(CASES), "--only", *numbers, *model, *limits, "--out", str(folder)]) == 0
    return json.loads((folder / "results.json").read_text())["runs"]


@EACH
def test_a_case_ends_within_its_budget_with_its_verdict_as_it_was(
    number: str, budget: str, evaluated: Evaluated
) -> None:
    run, limits = evaluated.runs[number, budget], BUDGETS[budget]

    assert run["verdict_intact"]
    assert run["requests"] <= limits.requests
    assert run["tool_calls"] <= limits.tool_calls
    assert run["seconds"] < limits.seconds + LATE_S
    claims = run["claims"]
    marked = claims["supported"] + claims["contradicted"] + claims["unverifiable"] + claims["turned_away"]
    assert claims["handed_in"] == marked


@EACH
def test_a_transcript_plays_again_to_the_same_bytes_and_what_passed_is_true(
    number: str, budget: str, evaluated: Evaluated, tmp_path: Path
) -> None:
    recorded, again = evaluated.folder / budget / f"{number}.jsonl", tmp_path / "again.jsonl"
    (known,) = read_known(CASES, [number])
    replayed = Replayed(read_transcript(str(recorded)), str(recorded))
    with open_neutral(known) as case, TranscriptFile(str(again)) as written:
        written.write(TranscriptRecord("case", {}))
        both = _Both(replayed, written)
        talk = Talk(case, replayed, Account(replayed.budget), both, Hear(_nothing, _nothing), replayed.clock)
        explanation = explain(talk, similar_without(known))
        replayed.finish()
        passed = [claim.claim for claim in explanation.claims if claim.status is ClaimStatus.SUPPORTED]
        untrue = [claim for claim in passed if is_true(claim, case) is False]

    assert again.read_bytes() == recorded.read_bytes()
    assert untrue == []


def test_the_model_was_heard(evaluated: Evaluated) -> None:
    """Where nothing is said, nothing is proven."""
    assert sum(run["requests"] for run in evaluated.runs.values()) > len(evaluated.runs)
    assert any(run["claims"]["handed_in"] for run in evaluated.runs.values())


class _Both:
    """Compares with the record, and writes it anew."""

    def __init__(self, replayed: Replayed, written: TranscriptFile) -> None:
        self._transcripts = (replayed, written)

    def write(self, record: TranscriptRecord) -> None:
        for transcript in self._transcripts:
            transcript.write(record)


def _nothing(_: str) -> None:
    pass
