"""How a command is started: options for torchrun, variables, folders, and what is read from them afterwards."""

import os
import time
from pathlib import Path

from forkpoint.evidence import read
from forkpoint.knowledge.recorder import Release
from forkpoint.live.children import ANY_NODE
from forkpoint.live.run.attempt import find_alarm, is_hang
from forkpoint.live.run.start import (
    fetch_dumps,
    find_torch,
    guarding,
    make_attempt_folder,
    node_name,
    plan_launch,
    recording,
    run_name,
)
from forkpoint.live.worker import find_last_step, find_nodes
from forkpoint.model.world import render_ranks
from looping import for_each
from small_jobs import SmallJob

LOGS = Path("logs")
ELSEWHERE = "/opt/training/bin/torchrun"
"""Not beside this Python, so without our plug-in."""


@for_each(
    ("command", "place"),
    [
        ([ELSEWHERE, "--nproc-per-node", "8", "train.py"], 1),
        ([ELSEWHERE, "--standalone", "train.py", "--log-dir", "mine"], 1),
        ([ELSEWHERE, "--nnodes=2", "-m", "train", "--tee", "3"], 1),
        (["/opt/training/bin/python3", "-u", "-m", "torch.distributed.run", "train.py"], 4),
    ],
)
def test_torchrun_gets_one_log_per_rank(command: list[str], place: int) -> None:
    launch = plan_launch(command, {})

    assert launch.argv(LOGS) == (*command[:place], "--log-dir", "logs", "--tee", "3", *command[place:])
    assert launch.is_local
    assert launch.writes_logs


@for_each(
    "command",
    [
        ["torchrun", "--log-dir", "mine", "train.py"],
        ["torchrun", "--log_dir=mine", "train.py"],
        ["torchrun", "--nnodes", "2", "-t", "3", "train.py"],
        ["torchrun", "--standalone", "--redirects", "3", "-m", "train"],
        ["python", "-m", "torch.distributed.run", "--logs-specs", "mine", "train.py"],
    ],
)
def test_log_options_of_the_user_stay_alone(command: list[str]) -> None:
    launch = plan_launch(command, {})

    assert launch.argv(LOGS) == tuple(command)
    assert launch.is_local


def test_log_options_in_torchruns_own_variables_count_too() -> None:
    assert plan_launch([ELSEWHERE, "train.py"], {"PET_TEE": "3"}).argv(LOGS) == (ELSEWHERE, "train.py")


@for_each(
    "command",
    [["srun", "torchrun", "train.py"], ["python", "torch.distributed.run", "-m", "x"], ["python", "-m", "train"]],
)
def test_other_commands_are_left_as_they_are_and_tell_no_node(command: list[str]) -> None:
    launch = plan_launch(command, {})

    assert launch.argv(LOGS) == tuple(command)
    assert not launch.is_local


def test_a_command_that_is_one_rank_runs_here() -> None:
    assert plan_launch(["python", "train.py"], {"RANK": "3"}).is_local


# ----------------------------------------------------------------------------------------------------------- variables


@for_each(
    ("release", "present", "absent"),
    [
        (Release(2, 13), "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        (Release(2, 13), "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        (Release(2, 5), "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
        (Release(2, 5), "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
    ],
)
def test_recording_is_switched_on_by_the_names_of_that_release(release: Release, present: str, absent: str) -> None:
    added = recording("dumps/rank_", {}, release)

    assert present in added
    assert absent not in added
    assert added["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"


def test_where_the_release_is_not_known_both_names_are_set() -> None:
    added = recording("dumps/rank_", {}, None)

    assert added["TORCH_FR_BUFFER_SIZE"] == added["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert added["TORCH_FR_DUMP_TEMP_FILE"] == added["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == "dumps/rank_"


@for_each(
    ("name", "family"),
    [
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "BUFFER_SIZE"),
        ("TORCH_FR_BUFFER_SIZE", "BUFFER_SIZE"),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TEMP_FILE"),
        ("TORCH_FR_DUMP_DYNAMIC_FILE_NAME", "TEMP_FILE"),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "DUMP_ON_TIMEOUT"),
        ("PYTHONFAULTHANDLER", "PYTHONFAULTHANDLER"),
    ],
)
def test_a_variable_that_the_user_set_is_not_overruled_by_either_name(name: str, family: str) -> None:
    added = recording("dumps/rank_", {name: "mine"}, None)

    assert [other for other in added if family in other] == []


def test_a_guard_that_the_user_configured_stays_as_it_is(tmp_path: Path) -> None:
    place = make_attempt_folder(tmp_path, "run", 0, "node-a")

    assert guarding(place, {"FORKPOINT": "raise"}, 20, None) == {
        "FORKPOINT_STALL_S": "20",
        "FORKPOINT_DIR": str(place.guard),
    }


def test_the_release_of_torch_is_read_beside_the_interpreter_of_a_script(tmp_path: Path) -> None:
    version = tmp_path / "lib" / "python3.12" / "site-packages" / "torch" / "version.py"
    version.parent.mkdir(parents=True)
    version.write_text("__version__ = '2.9.1+cu128'\n")
    script = tmp_path / "bin" / "torchrun"
    script.parent.mkdir()
    script.write_text(f"#!{tmp_path}/bin/python3\n")
    script.chmod(0o755)

    assert find_torch(["torchrun"], {"PATH": str(script.parent)}) == Release(2, 9)
    assert find_torch(["sh"], os.environ) is None


def test_dumps_that_the_user_sent_elsewhere_are_copied_if_they_are_of_this_attempt(tmp_path: Path) -> None:
    place = make_attempt_folder(tmp_path / "runs", "run", 0, "node-a")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "trace_1").write_bytes(b"old")
    os.utime(mine / "trace_1", (1000, 1000))
    (mine / "trace_2").write_bytes(b"new")
    (mine / "other").write_bytes(b"new")

    fetch_dumps(place, {"TORCH_FR_DUMP_TEMP_FILE": str(mine / "trace_")}, time.time() - 60)

    assert [path.name for path in place.dumps.iterdir()] == ["trace_2"]


# ------------------------------------------------------------------------------------------------------ folders and nodes


def test_nodes_of_one_slurm_job_share_a_name_and_a_requeued_one_does_not() -> None:
    first = run_name({"SLURM_JOB_ID": "77"})

    assert first == run_name({"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "0"})
    assert first != run_name({"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "1"})


def test_a_node_is_called_as_the_scheduler_calls_it() -> None:
    assert node_name({"SLURMD_NODENAME": "gpu-07"}) == "gpu-07"
    assert node_name({"NODE_NAME": "ip-10-0-0-7"}) == "ip-10-0-0-7"


def test_the_folder_in_which_a_rank_left_its_dump_tells_its_node(tmp_path: Path) -> None:
    job = SmallJob(4)
    job.op()
    folders = ["node-a", "node-a", "node-b", ANY_NODE]
    places = {node: make_attempt_folder(tmp_path, "run", 0, node) for node in set(folders)}
    for rank, node in enumerate(folders):
        (places[node].dumps / f"nccl_trace_rank_{rank}").write_bytes(job.dump(rank))
    attempt = places["node-a"].attempt

    assert find_nodes(read([str(attempt)]), attempt) == {0: "node-a", 1: "node-a", 2: "node-b"}


# --------------------------------------------------------------------------------------------------------------- hangs


def write_alarm(guard: Path, stamp: str, *, stalled: bool) -> Path:
    folder = guard / stamp
    folder.mkdir(parents=True)
    (folder / "ranks.json").write_text(render_ranks(2, 9.0, stalled=stalled))
    (folder / "verdict.json").write_text("{}")
    return folder


def test_the_last_alarm_that_is_complete_counts(tmp_path: Path) -> None:
    write_alarm(tmp_path, "20261115-100000", stalled=False)
    last = write_alarm(tmp_path, "20261115-110000", stalled=False)
    (tmp_path / "20261115-120000").mkdir()  # still being written

    assert find_alarm(tmp_path) == last
    assert find_alarm(tmp_path / "nothing") is None


@for_each(
    ("stalled", "quiet_s", "hangs"),
    [(True, 0.0, True), (False, 31.0, True), (False, 29.0, False)],
)
def test_an_alarm_of_a_job_that_goes_on_is_no_hang(tmp_path: Path, stalled: bool, quiet_s: float, hangs: bool) -> None:
    alarm = write_alarm(tmp_path, "20261115-100000", stalled=stalled)

    assert is_hang(alarm, quiet_s, hang_s=30.0) is hangs


# --------------------------------------------------------------------------------------------------------------- steps


@for_each(
    ("line", "step"),
    [
        ("step 120 loss 2.1", 120),
        ("[rank0]: iter: 120/5000", 120),
        ("global_step=120, lr=0.1", 120),
        ("Iteration 120", 120),
        ("steps per second 3.5", None),
        ("stepping 120", None),
        ("step 3.5 s", None),
    ],
)
def test_the_last_training_step_is_read_from_logs(tmp_path: Path, line: str, step: int | None) -> None:
    (tmp_path / "log.txt").write_text(f"step 7\n{line}\n" if step else f"{line}\n")

    assert find_last_step([str(tmp_path / "log.txt"), str(tmp_path / "gone.txt")]) == step
