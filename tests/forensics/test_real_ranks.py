"""What is recorded is what a rank had before reduction: real gloo ranks, each way of wrapping a model."""

import json
from pathlib import Path

import pytest

import forkpoint
from forkpoint.model.values import ForensicsLog
from forkpoint.model.verdict import Cause
from looping import for_each
from warm import run

pytestmark = pytest.mark.torch

JOBS = ["ddp", "views", "accumulated", "fsdp", "plain"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    done = run("-m", "forensics.ranks", str(folder))
    assert done.code == 0, done.err
    return folder


def norms(log: ForensicsLog) -> list[float]:
    return [sum(norm**2 for norm in step.norms if norm is not None) ** 0.5 for step in log.steps]


@for_each("job", JOBS)
def test_each_rank_records_the_gradients_of_its_own_batch(folder: Path, job: str) -> None:
    logs = forkpoint.read([str(folder / job)]).values.forensics

    assert [log.rank for log in logs] == [0, 1, 2]
    for log in logs:
        assert norms(log) == pytest.approx(json.loads((folder / job / f"alone_{log.rank}.json").read_text()), rel=1e-4)
    assert len({round(norms(log)[0], 4) for log in logs}) == 3


@for_each("job", JOBS)
def test_layers_losses_and_indices_are_there_on_every_step(folder: Path, job: str) -> None:
    log = forkpoint.read([str(folder / job)]).values.forensics[1]

    assert log.groups == ("0", "2")
    assert [step.step for step in log.steps] == [1, 2, 3, 4]
    assert {step.data for step in log.steps} == {(0, 1, 2, 3)}
    assert all(step.loss is not None and step.data_is_whole and step.nonfinite == (0, 0) for step in log.steps)
    assert all(
        0 < largest <= norm for step in log.steps for largest, norm in zip(step.largest, step.norms, strict=True)
    )


def test_files_of_a_run_in_which_nothing_was_odd_are_healthy(folder: Path) -> None:
    verdict = forkpoint.diagnose(forkpoint.read([str(folder / "ddp")]))

    assert (verdict.cause, verdict.suspects) == (Cause.HEALTHY, ())
    assert all(evidence.where.startswith("line ") for evidence in verdict.evidence)
