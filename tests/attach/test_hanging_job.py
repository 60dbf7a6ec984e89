"""One real job on gloo hangs: rank 2 took another branch. All ranks have the guard, rank 1 torch's debug server as well;
they are asked in several ways, and the job stays as it was.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.attach.hangs import JOB, WHO, Hang, Running, forbid_ptrace, running, wait_for
from forkpoint.cli import main
from forkpoint.evidence.stacks.read import read_live_stacks
from forkpoint.gather.attach.folder import Attached
from forkpoint.gather.attach.stacks import find_py_spy, take_stacks
from forkpoint.model.world import name_ranks

pytestmark = pytest.mark.torch

PORT = 29_400 + os.getpid() % 500
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift; host=$1; shift
[ "$host" = gone ] && { echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255; }
exec sh -c "$*"
"""


@pytest.fixture(scope="module")
def job() -> Iterator[Running]:
    hang = Hang(
        "branch", "branch", {"FORKPOINT": "1", "FORKPOINT_STALL_S": "3000"}, {1: {"DEBUG_SERVER": "1"}}, world=3
    )
    with running(hang, PORT) as found:
        yield found


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(JOB.read_text().splitlines(), 1) if text in line)


def attach(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any], str]:
    code = main(["attach", *argv, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def test_the_rank_that_left_and_its_line_are_named_and_the_job_is_not_disturbed(
    job: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = job.states()

    code, verdict, said = attach(capsys, "--job", str(PORT), "--keep", str(tmp_path / "kept"))

    assert job.states() == before
    assert (code in (1, 4), verdict["suspects"]) == (True, [WHO])
    assert f"job.py:{line_of('# here: branch')}" in json.dumps(verdict)
    for rank, way in enumerate(("guard", "debug server", "guard")):
        assert f"rank {rank}: recorder by {way}, stacks by {way}" in said
    assert "no rank moved for" in said
    again = subprocess.run(
        [sys.executable, "-m", "forkpoint", "diagnose", str(tmp_path / "kept"), "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert json.loads(again.stdout)["suspects"] == [WHO]


def test_py_spy_looks_at_a_rank_that_nobody_else_can_be_asked_about_and_lets_it_go_on(job: Running) -> None:
    before, py_spy = job.states(), find_py_spy()
    assert py_spy is not None

    for native in (False, True):
        taken = take_stacks(job.ranks[WHO].pid, py_spy, native=native, limit_s=600.0)  # a busy machine needs long
        assert isinstance(taken, bytes)
        (stacks,) = read_live_stacks(taken.decode(), "rank_2", WHO)
        assert (JOB.name, line_of("# here: branch")) in {(Path(f.filename).name, f.line) for f in stacks.stack}

    assert job.states() == before


def test_without_ptrace_it_says_what_is_missing_and_uses_what_still_answers(job: Running) -> None:
    """The filter that containers have: py-spy cannot look, the guards still answer."""
    before = job.states()
    asked = f"from forkpoint.gather.attach.stacks import *; print(take_stacks({job.ranks[0].pid}, find_py_spy()))"
    told = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, preexec_fn=forbid_ptrace,
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "forkpoint", "attach", "--job", str(PORT), "--json"],
        capture_output=True, text=True, check=False, preexec_fn=forbid_ptrace,
    )  # fmt: skip

    assert job.states() == before
    assert "seccomp" in told.stdout or "SYS_PTRACE" in told.stdout
    assert json.loads(done.stdout)["suspects"] == [WHO]


def test_the_guard_says_once_how_evidence_is_kept(job: Running) -> None:
    log = job.folder / "log_rank_0.txt"
    wait_for(lambda: "forkpoint attach --keep DIR" in log.read_text())

    assert log.read_text().count("FORKPOINT=dump") == 1


def test_other_machines_ask_their_own_ranks_and_one_that_is_gone_is_said(
    job: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    kept = tmp_path / "kept"
    hosts = ("--hosts", "node-1,gone", "--node-python", sys.executable, "--no-stacks", "--node-timeout", "300")

    _, verdict, said = attach(capsys, "--job", str(PORT), *hosts, "--keep", str(kept))

    assert "node-1: 3 ranks" in said
    assert "gone: no rank could be asked" in said
    assert "gone: gone does not answer: it is down, frozen or disconnected" in said
    assert list((kept / "node-1").rglob("rank_1.json"))
    assert [path.parent for path in kept.rglob("ranks.json")] == [kept]
    assert verdict["suspects"] == [WHO]
    assert len(job.states()) == len(job.ranks)


def test_collect_asks_running_ranks_in_the_same_way(
    job: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", "--here", "--ask", "-o", str(tmp_path / "got"), "--json"]) == 0

    manifest = json.loads(capsys.readouterr().out)
    asked = {Path(file["origin"]).name for file in manifest["files"] if file["place"] == "ranks"}
    assert {"rank_0.pickle", "rank_1.json", "rank_1_stacks.txt", "rank_2_stacks.txt"} <= asked
    assert len(job.states()) == len(job.ranks)


def test_ranks_of_a_job_that_was_not_all_seen_are_named() -> None:
    attached = Attached("job", 8, (), (5,), 0.0)

    assert name_ranks(attached.unseen) == "ranks 0-4,6-7"
