"""Real Ray: five nodes on this machine, of which one is slow and one dies while it is asked."""

from pathlib import Path
from typing import Any

import pytest

from cluster.machines import Scenario, essence
from forkpoint.evidence import read
from forkpoint.pipeline import diagnose


@pytest.fixture(scope="module")
def told(scenarios: dict[str, Scenario]) -> dict[str, Any]:
    pytest.importorskip("ray")
    return scenarios["ray"].told()


@pytest.fixture(scope="module")
def root(scenarios: dict[str, Scenario]) -> Path:
    return scenarios["ray"].root


def test_without_a_cluster_none_is_started(told: dict[str, Any]) -> None:
    assert "no Ray cluster at auto" in told["refused"]


def test_a_cluster_that_has_died_is_told_at_once_though_ray_still_has_its_address(told: dict[str, Any]) -> None:
    assert "no Ray cluster at auto" in told["refused_dead"]
    assert "refused" in told["refused_dead"]


def test_the_node_that_died_and_the_slow_one_are_named_and_the_others_answer(told: dict[str, Any]) -> None:
    problems = told["problems"]

    assert [problems[node] for node in ("node1", "node2", "node3")] == [None, None, None]
    assert "no answer after 60 s" in problems["slow"]
    assert "dead or unavailable" in problems["dying"]


def test_what_the_nodes_merged_gives_the_verdict_of_their_dumps(told: dict[str, Any], root: Path) -> None:
    merged = diagnose(read([str(root / "all.fps")]))

    assert essence(merged) == essence(diagnose(read([str(root / f"node{n}" / "dumps") for n in (1, 2, 3)])))
    assert merged.suspects == (5,)
    assert len([note for note in merged.coverage.notes if "no answer after" in note]) == 1


def test_a_file_is_read_on_the_node_that_has_it(told: dict[str, Any]) -> None:
    assert told["same"] is True
    assert "not schedulable" in told["lost"]


def test_no_task_stays_once_nobody_waits_for_it_and_no_process_of_the_cluster(told: dict[str, Any]) -> None:
    assert told["running"] == 0
    assert told["left"] == []
