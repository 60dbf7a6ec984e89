"""`forkpoint lab collectives` with real ranks: right data pass, planted faults are found, nothing hangs or is left."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from forkpoint.cli import main
from forkpoint.lab.collectives.plan import KIND_BY_NAME
from forkpoint.live.processes import free_port
from lab.namespaces import missing, namespaces
from looping import is_swept
from warm import Done, Program, program, run

pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
MODULE = "forkpoint.lab.jobs.collectives"
FEW = ("--sizes", "4K", "--dtypes", "float32", "--groups", "world")
BARRIER = (*FEW, "--collectives", "barrier")
ONE = (*FEW, "--collectives", "all_reduce_sum,all_gather,broadcast", "--no-pairs")


Told = tuple[int, dict[str, Any], str]


def told_by(done: Done) -> Told:
    assert done.out, done.err
    return done.code, json.loads(done.out), done.err


def command_of(*args: str) -> tuple[str, ...]:
    """As the command starts them, without its own look at which torch is there."""
    return "-m", MODULE, "--backend", "gloo", "--json", *args


def collectives(*args: str) -> Told:
    return told_by(run(*command_of(*args)))


@pytest.fixture(scope="module", autouse=True)
def stopped(request: pytest.FixtureRequest) -> Iterator[dict[str, Program]]:
    """Runs that wait for a timeout: begun before all others, which go on beside them."""
    faults = {"dies": "die:1"} | ({"hangs": "hang:0"} if is_swept(request) else {})
    few = ("--ranks", "2", *ONE, "--timeout", "20", "--inject")
    with ExitStack() as at_end:
        yield {name: at_end.enter_context(program(*command_of(*few, fault))) for name, fault in faults.items()}


def test_every_collective_and_type_is_right_to_the_bit_and_timed(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    few = ("--sizes", "8,1000", "--iterations", "2", "--no-pairs", "--mesh", "dp=3", "--perfetto", str(trace))

    code, told, _ = collectives("--ranks", "3", *few)

    assert (code, told["schema"], told["good"]) == (0, "forkpoint.collectives/1", True)
    assert told["wrong"] == told["stopped"] == []
    # gloo says itself what it does not have; all else was compared
    absent = {(one["kind"], one["dtype"]) for one in told["unsupported"]}
    assert ("all_reduce_sum", "bfloat16") not in absent
    assert {row["kind"] for row in told["rows"]} == set(KIND_BY_NAME) - {
        kind for kind, dtype in absent if dtype == "float32"
    }
    reduced = next(row for row in told["rows"] if row["kind"] == "all_reduce_sum")
    assert reduced["bus_gbps"] == pytest.approx(reduced["alg_gbps"] * 4 / 3)
    assert reduced["median_ns"] <= reduced["p95_ns"]
    slices = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert {event["pid"] for event in slices} == {0, 1, 2}


@pytest.mark.sweep
def test_wrong_data_are_named_with_rank_collective_type_group_and_element() -> None:
    planted = ("--inject", "flip:2:all_reduce_sum", "--inject", "lost:1:all_gather")

    code, told, _ = collectives("--ranks", "4", *ONE, "--groups", "halves", *planted)

    assert (code, told["good"]) == (1, False)
    assert {(one["rank"], one["kind"]) for one in told["wrong"]} == {(2, "all_reduce_sum"), (1, "all_gather")}
    flipped = next(one for one in told["wrong"] if one["kind"] == "all_reduce_sum")
    assert (flipped["dtype"], flipped["group"], flipped["element"]) == ("float32", [2, 3], 512)
    assert (flipped["wrong"], flipped["of"]) == (1, 1024)
    lost = next(one for one in told["wrong"] if one["kind"] == "all_gather")
    assert (lost["element"], lost["got"]) == (1023, "251.0")


@pytest.mark.sweep
def test_a_rank_that_really_gives_less_than_the_others_makes_wrong_data_that_are_seen() -> None:
    few = ("--sizes", "4K", "--dtypes", "int32", "--groups", "world", "--collectives", "gather", "--no-pairs")

    code, told, _ = collectives("--ranks", "2", *few, "--inject", "unequal:1:gather")

    assert code == 1
    [wrong] = told["wrong"]
    assert (wrong["rank"], wrong["element"], wrong["wrong"]) == (0, 1023, 1)


@pytest.mark.sweep  # what is measured has to be measured in peace
def test_a_link_that_is_slow_between_two_of_eight_ranks_is_named_and_no_other() -> None:
    if missing() is None:
        pytest.skip("the next test does it with real traffic control")

    code, told, _ = collectives("--ranks", "8", *BARRIER, "--pair-size", "4K", "--inject", "delay:2:5:8")

    assert code == 1
    assert [(one["part"], one["ranks"]) for one in told["blamed"]] == [("link", [2, 5])]
    assert len(told["pairs"]) == 28


@pytest.mark.sweep
def test_a_real_link_at_a_tenth_of_the_rate_is_named_and_no_other() -> None:
    if why := missing():
        pytest.skip(f"no traffic control here: {why}")
    script, few = str(HERE / "ranks_in_namespaces.py"), ("--iterations", "4", *BARRIER)

    with namespaces(f"fp{os.getpid()}-", 8, (2, 5), "400mbit", "40mbit") as spaces:
        command = (script, ",".join(spaces), "--backend", "gloo", "--json", "--pair-size", "128K", *few)
        code, told, _ = told_by(run(*command))

    assert code == 1
    assert [(one["part"], one["ranks"]) for one in told["blamed"]] == [("link", [2, 5])]
    assert [pair["measure"] for pair in told["blamed"][0]["pairs"]] == ["large"]


@pytest.mark.sweep
def test_a_rank_that_hangs_ends_the_run_and_is_told(stopped: dict[str, Program]) -> None:
    code, told, _ = told_by(stopped["hangs"].finish())

    assert (code, told["good"]) == (1, False)
    assert {one["at"] for one in told["stopped"]} == {"all_gather float32 4096 B over world"}
    hung = next(one for one in told["stopped"] if one["rank"] == 0)
    assert "has made no progress" in hung["why"]


def test_a_rank_that_dies_is_the_one_that_told_nothing(stopped: dict[str, Program]) -> None:
    code, told, err = told_by(stopped["dies"].finish())

    assert code == 1
    assert "rank 1 ended with -9" in err
    first = told["stopped"][0]
    assert (first["rank"], first["at"]) == (1, "all_gather float32 4096 B over world")
    assert "sent no report" in first["why"]


@pytest.mark.sweep
def test_a_first_rank_that_dies_leaves_no_result_and_says_so() -> None:
    few = ("--ranks", "2", *ONE, "--timeout", "20", "--inject", "die:0")
    done = run("-m", "forkpoint", "lab", "collectives", "--backend", "gloo", *few)

    assert (done.code, done.out) == (4, "")
    assert "rank 0 ended with -9" in done.err


def script_for_launchers(capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    assert main(["lab", "collectives", "--script-only", "--backend", "gloo", "--json", *ONE, *more]) == 0
    words = capsys.readouterr().out.split()
    return words[words.index("-m") :]


LAUNCHER = """
import os, runpy, sys
import torch.distributed

said, _, module, *arguments = sys.argv[1:]
ranks = []
for rank in range(2):
    ranks.append(os.fork())
    if ranks[-1] == 0:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        os.dup2(os.open(said + str(rank), os.O_WRONLY | os.O_CREAT), 1)
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        sys.exit()
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks))
"""
"""Starts a process for each rank, all forks of one that has imported torch, and tells it who it is."""


def test_it_runs_under_the_users_own_launcher_and_names_wrong_data_with_rank_collective_and_element(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = script_for_launchers(capsys, "--inject", "flip:1:all_reduce_sum")
    where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}

    done = run("-c", LAUNCHER, str(tmp_path / "said_"), *script, **where)

    assert done.code == 1, done.err
    told = json.loads((tmp_path / "said_0").read_text())
    assert (told["world"], told["good"]) == (2, False)
    assert {(one["rank"], one["kind"], one["element"]) for one in told["wrong"]} == {(1, "all_reduce_sum", 512)}
    assert (tmp_path / "said_1").read_text() == ""


@pytest.mark.sweep
def test_it_runs_under_torchrun(capsys: pytest.CaptureFixture[str]) -> None:
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2")

    code, told, _ = told_by(run(*torchrun, *script_for_launchers(capsys)))

    assert (code, told["world"], told["good"]) == (0, 2, True)
