"""Real Monarch, real processes, real gloo: what a call that goes wrong says, and that nothing is left of the job."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from looping import is_swept

pytestmark = pytest.mark.torch
LIMIT_S = 850
TESTS = Path(__file__).parents[1]

Told = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Told:
    """One process for all jobs: importing torch is most of what they cost."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{TESTS.parent}/src:{TESTS}"}
    env["TMPDIR"] = str(tmp_path_factory.mktemp("evidence"))
    command = [sys.executable, str(TESTS / "controller" / "scenarios.py"), *(["all"] if is_swept(request) else [])]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, _ = process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode == 0
    lines = [json.loads(line) for line in out.splitlines() if line.startswith('{"name"')]
    return {line["name"]: line for line in lines}


def test_every_rank_runs_the_same_calls_and_answers_in_the_order_of_ranks(told: Told) -> None:
    assert told["skipped"]["steps"] == [[[rank, 3.0 * number] for rank in range(3)] for number in range(3)]


def test_a_pipeline_whose_ranks_send_unequally_is_no_divergence(told: Told) -> None:
    assert told["skipped"]["passed"] == [None, None, None]


@pytest.mark.sweep
def test_equally_many_collectives_that_do_not_fit_are_found_although_nothing_hangs(told: Told) -> None:
    verdict = told["other type"]["verdict"]

    assert (verdict["cause"], verdict["suspects"]) == ("metadata-mismatch", [1])
    assert (verdict["symptom"], told["other type"]["call"]) == ("no-hang", 5)


def test_a_skipped_collective_names_the_odd_rank_and_the_call(told: Told) -> None:
    verdict = told["skipped"]["verdict"]

    assert (verdict["cause"], verdict["suspects"], verdict["action"]) == ("divergent-path", [1], "fix-code")
    assert verdict["summary"].startswith("In call 5 (skip_one): ")


@pytest.mark.sweep
def test_an_exception_of_one_rank_stops_those_that_wait_for_it(told: Told) -> None:
    verdict = told["raised"]["verdict"]

    assert (verdict["cause"], verdict["suspects"]) == ("divergent-path", [1])
    assert "ValueError: bad batch" in verdict["summary"]
    assert {"log_rank_1.txt", "stacks_rank_0.txt", "trace_rank_2"} <= set(told["raised"]["files"])


def test_a_process_that_ends_is_named_and_not_those_that_lose_their_connection(told: Told) -> None:
    verdict = told["exited"]["verdict"]

    assert (verdict["cause"], verdict["suspects"], verdict["action"]) == ("rank-lost", [1], "investigate")
    # Monarch tells the code some seconds after the kernel told of the end: on a busy machine too late.
    assert re.search(
        r"rank 1 was lost: its process (is gone \(exited with .*code 7|exited with .*code 7|ended)", verdict["summary"]
    )


@pytest.mark.sweep
def test_a_rank_that_stalls_is_named_with_the_line_where_it_stands(told: Told) -> None:
    verdict = told["stalled"]["verdict"]

    assert (verdict["cause"], verdict["suspects"]) == ("host-stall", [1])
    assert "trainer.py" in verdict["summary"]
    assert "\nVERDICT v1 cause=host-stall " in told["stalled"]["text"]


def test_no_process_is_left_of_any_job(told: Told) -> None:
    assert {name: line["left"] for name, line in told.items()} == {name: [] for name in told}
    assert told.keys() >= {"skipped", "exited", "of others"}
    assert told["skipped"]["running"] == 3


def test_a_job_that_has_ended_takes_no_calls(told: Told) -> None:
    assert "start it with" in told["skipped"]["after"]


@pytest.mark.sweep
def test_a_job_of_one_rank_runs_to_its_end(told: Told) -> None:
    assert told["ended"]["steps"] == [[[0, 7.0]]]
    assert told["ended"]["running"] == 1
    assert told["ended"]["left"] == []
    assert "start it with" in told["ended"]["after"]


def test_without_monarch_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['monarch'] = None; import forkpoint.controller"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert run.returncode == 1
    assert "pip install 'forkpoint[monarch]'" in run.stderr


def test_how_its_ranks_end_is_no_fault_of_the_program_and_those_of_others_are_passed_on(told: Told) -> None:
    assert told["of others"]["heard"] == ["of another program"]
