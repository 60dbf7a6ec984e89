"""Real jobs, run and broken: what is left is a capture with its truth, and no process."""

import threading
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL

import pytest

import forkpoint
from forkpoint.lab.fault import FAULTS, Edit, Fault, read_case
from forkpoint.lab.ranks import LabSettings, Signal, _own_folder
from forkpoint.lab.record import RecordedFault, record
from forkpoint.model.verdict import Cause

pytestmark = pytest.mark.torch


WITHOUT_TORCH = """
import os, socket, sys, time
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    peer, _ = socket.create_server(address).accept()
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
print("hears", os.environ["GREETING"])
for step in range(int(os.environ["STEPS"])):
    peer.sendall(b".")
    print("step", step, "done", flush=True)
    time.sleep(0.05)
    if not peer.recv(1):
        sys.exit("the other rank is gone")
"""
"""Ranks that need each other, as those of a job do, at a fraction of what importing torch costs."""


def fault_named(name: str) -> Fault:
    return next(fault for fault in FAULTS if fault.name == name)


def processes_of(recorded: RecordedFault) -> list[str]:
    """Command lines of processes that still run in a folder of this run."""
    left = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            if recorded.fault.name in str((proc / "cwd").readlink()):
                left.append((proc / "cmdline").read_text())
        except OSError:
            continue
    return left


def named(fault: Fault, tmp_path: Path) -> Fault:
    """Under a name of this test's own, so that its processes can be told from those of others."""
    return replace(fault, name=f"{fault.name}-{tmp_path.name}")


@pytest.mark.sweep
def test_a_healthy_job_runs_to_its_end_and_is_called_healthy(tmp_path: Path) -> None:
    fault = named(replace(fault_named("healthy-loop"), env={"STEPS": "6"}), tmp_path)

    recorded = record(fault, LabSettings(out=tmp_path, world=2, pg_timeout=600, limit=800))

    assert dict(recorded.exits) == {0: 0, 1: 0}
    assert sorted(path.name for path in recorded.folder.iterdir()) == ["capture", "case.toml", "source"]
    assert recorded.dumps == 2
    verdict = forkpoint.diagnose(forkpoint.read([str(recorded.capture)]))
    assert verdict.cause is Cause.HEALTHY
    assert processes_of(recorded) == []


def test_a_broken_job_leaves_dumps_logs_stacks_source_and_truth(tmp_path: Path) -> None:
    recorded = record(
        named(fault_named("metric-on-rank-0"), tmp_path), LabSettings(out=tmp_path, world=3, pg_timeout=60, limit=800)
    )

    kinds = {path.name.rstrip("0123456789.tx") for path in recorded.capture.iterdir()}
    assert kinds == {"nccl_trace_rank_", "log_rank_", "stacks_rank_"}
    assert "and RANK == 0" in (recorded.source / "train.py").read_text()
    assert "/train.py" in (recorded.capture / "stacks_rank_0.txt").read_text()
    case = read_case(recorded.folder)
    verdict = forkpoint.diagnose(forkpoint.read([str(case.capture)]), [str(case.source)])
    assert verdict.cause in case.truth.cause
    assert verdict.suspects in case.truth.suspects
    assert processes_of(recorded) == []


def test_a_signal_is_sent_when_the_log_says_so_and_a_run_can_go_without_anything_of_the_lab_inside(
    tmp_path: Path,
) -> None:
    job = fault_named("healthy-loop").job
    instead = Edit(job.text, WITHOUT_TORCH)
    fault = replace(fault_named("healthy-loop"), edits=(instead,), signals=(Signal(1, SIGKILL, when="step 2 "),))

    settings = LabSettings(out=tmp_path, world=2, limit=800, dumps=False, env={"STEPS": "5000", "GREETING": "hello"})
    recorded = record(named(fault, tmp_path), settings)

    assert recorded.exits[1] == -SIGKILL
    assert recorded.exits[0] != 0
    assert "hears hello\n" in recorded.log(0)
    assert "step 2 " in recorded.log(1)
    assert sorted(path.name for path in recorded.capture.iterdir()) == ["log_rank_0.txt", "log_rank_1.txt"]
    assert processes_of(recorded) == []


def test_a_run_that_is_cancelled_ends_its_ranks(tmp_path: Path) -> None:
    settings = LabSettings(out=tmp_path, world=2, limit=800)
    threading.Timer(1, settings.cancelled.set).start()

    recorded = record(named(replace(fault_named("healthy-loop"), env={"STEPS": "5000"}), tmp_path), settings)

    assert set(recorded.exits.values()) == {-SIGKILL}
    assert processes_of(recorded) == []


def test_two_runs_of_one_name_do_not_share_a_folder() -> None:
    with _own_folder("job", "twice") as first, _own_folder("job", "twice") as second:
        assert first != second
        assert first.is_dir()
        assert second.is_dir()

    assert not first.exists()
    assert not second.exists()
