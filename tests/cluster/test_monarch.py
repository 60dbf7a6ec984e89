"""Real Monarch: workers on this machine, of which one is slow, one dies while it is asked, and one is not there."""

from pathlib import Path
from typing import Any

import pytest

from cluster.machines import Scenario, essence
from forkpoint.evidence import read
from forkpoint.pipeline import diagnose


@pytest.fixture(scope="module")
def told(scenarios: dict[str, Scenario]) -> dict[str, Any]:
    pytest.importorskip("monarch")
    return scenarios["monarch"].told()


@pytest.fixture(scope="module")
def root(scenarios: dict[str, Scenario]) -> Path:
    return scenarios["monarch"].root


def test_workers_that_die_are_slow_or_are_not_there_are_named_and_the_others_answer(told: dict[str, Any]) -> None:
    problems = told["problems"]

    assert [problems[node] for node in ("node1", "node2", "node3")] == [None, None, None]
    assert ["no answer after 60 s" in problems[node] for node in ("slow", "dying")] == [True, True]
    # Depending on which of the two comes first, Monarch says that nobody is there, or nothing.
    assert problems["absent"].startswith(("no answer after 60 s", "failed: "))


def test_what_the_actors_merged_gives_the_verdict_of_their_dumps(told: dict[str, Any], root: Path) -> None:
    merged = diagnose(read([str(root / "all.fps")]))

    assert essence(merged) == essence(diagnose(read([str(root / f"node{n}" / "dumps") for n in (1, 2, 3)])))
    assert merged.suspects == (5,)
    assert [
        any(f"/{node}.socket: " in note for note in merged.coverage.notes) for node in ("slow", "dying", "absent")
    ] == [True] * 3


def test_a_backtrace_is_not_what_an_error_says() -> None:
    monarch = pytest.importorskip("forkpoint.gather.monarch")
    error = RuntimeError(
        "undeliverable message\naddress not routable: no one listens\n\nStack backtrace:\n   0: <unknown>\n"
        "   1: clone3\n             at ./misc/../sysdeps/unix/sysv/linux/x86_64/clone3.S:81:0\n"
    )

    assert monarch.tell_error(error) == "address not routable: no one listens"
    assert monarch.tell_error(RuntimeError()) == "RuntimeError"


def test_a_file_is_read_on_the_host_that_has_it(told: dict[str, Any]) -> None:
    assert told["same"] is True
    assert told["missing"] == "cannot be read (No such file or directory)"


def test_a_job_of_somebody_else_on_a_host_runs_on_and_nothing_of_ours_stays(told: dict[str, Any]) -> None:
    before, after = told["trainer"]
    assert before == after
    assert told["left"] == []
