"""A vote before every collective: the call that differs is found before it is made, on every rank."""

import json
from pathlib import Path

import pytest

from warm import run

pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
HOWS = ("fine", "root", "size", "absent")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    base = tmp_path_factory.mktemp("voted")
    told = []
    for how in HOWS:
        folder = base / how
        folder.mkdir()
        script = f"import os, runpy\nos.environ['VOTED'] = {how!r}\nrunpy.run_path({str(HERE / 'voted_job.py')!r})\n"
        (folder / "train.py").write_text(script)
        told.append({"folder": str(folder), "world": 3, "pg_timeout": 600, "imports": ["forkpoint.guard.voting"]})
    (base / "jobs.json").write_text(json.dumps(told))
    done = run(str(HERE.parent / "remedies" / "ranks.py"), str(base / "jobs.json"))
    assert done.code == 0, done.err
    return {how: [(base / how / f"log_rank_{rank}.txt").read_text() for rank in range(3)] for how in HOWS}


def test_ranks_that_make_the_same_calls_agree_whatever_makes_them(logs) -> None:
    assert all("AGREED" in log for log in logs["fine"])


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("root", ["ranks 0-1: broadcast(", "root_rank=0", "rank 2: broadcast(", "root_rank=2"]),
        ("size", ["ranks 0-1: allreduce(", "float32[5]", "rank 2: allreduce(", "float32[4]"]),
    ],
)
def test_a_call_that_differs_is_refused_on_every_rank_and_both_sides_are_named(logs, how, says) -> None:
    for log in logs[how]:
        assert "DIFFER" in log
        assert all(part in log for part in says), log


def test_who_does_not_come_is_named(logs) -> None:
    assert "rank 2: no call within 15 s" in logs["absent"][0]
