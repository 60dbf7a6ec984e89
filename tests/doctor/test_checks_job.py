"""What of a job is on this node: ranks, their meeting point, versions, the clock."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from doctor.machine_samples import with_links
from doctor.settings_samples import (
    CHRONY,
    CHRONY_ADRIFT,
    CHRONY_ALONE,
    FIB_TRIE,
    LISTENING,
    MODULE_565,
    REQUIRES,
    TIMEDATECTL,
    launcher,
    rank,
)
from forkpoint.doctor.checks.host import CLOCK, VERSIONS
from forkpoint.doctor.checks.job import MASTER_ADDRESS, ORPHANS, RANKS_ALIVE
from forkpoint.doctor.report import CheckStatus
from forkpoint.doctor.system import (
    KernelClock,
    Process,
    Ran,
    System,
    empty_machine,
    with_environ,
    with_files,
    with_outputs,
    with_packages,
    with_processes,
)
from looping import for_each

OK, BAD, SKIPPED = CheckStatus.OK, CheckStatus.BAD, CheckStatus.SKIPPED
ALL = [rank(n, 200 + n) for n in range(4)]


def among(*processes: Process) -> System:
    return with_processes(empty_machine(), [launcher(), *processes])


# Ranks.


def test_all_ranks_are_there() -> None:
    result = RANKS_ALIVE.look(among(*ALL))

    assert (result.status, result.says) == (OK, "MASTER_PORT=29500: all 4 ranks run")


def test_a_missing_rank_is_named_and_loader_workers_do_not_stand_in_for_it() -> None:
    workers = [rank(n, 300 + n, ppid=200 + n) for n in (0, 1, 3)]
    left_behind = [Process(1, 0, 0, "S", 0.0, ("/sbin/init",), None), rank(2, 302, ppid=1)]

    result = RANKS_ALIVE.look(among(ALL[0], ALL[1], ALL[3], *workers, *left_behind))

    assert (result.status, result.says) == (BAD, "MASTER_PORT=29500: local rank 2 of 4 is gone")
    assert result.fix == "ps -o pid,ppid,stat,etimes,wchan:32,cmd -p 200,201,302,203"


@for_each(("state", "status"), [("T", BAD), ("t", BAD), ("Z", BAD), ("D", OK), ("R", OK)])
def test_a_rank_that_was_stopped_makes_no_step(state: str, status: CheckStatus) -> None:
    result = RANKS_ALIVE.look(among(*ALL[:3], rank(3, 203, state=state)))

    assert result.status is status
    assert ("rank 3" in result.says) is (state != "R")


def test_python_processes_without_a_rank_do_not_count() -> None:
    result = RANKS_ALIVE.look(among(Process(9, 1, 0, "S", 0.0, ("python", "train.py"), {})))

    assert result.status is SKIPPED


def test_a_job_that_does_not_say_how_many_ranks_belong_here_is_not_judged() -> None:
    ranks = [replace(each, environ={"RANK": str(n)}) for n, each in enumerate(ALL)]

    result = RANKS_ALIVE.look(among(*ranks))

    assert result.status is SKIPPED
    assert result.says.startswith("4 ranks of a job without an id")


def test_of_two_jobs_the_one_that_was_named_is_looked_at() -> None:
    other = [rank(n, 400 + n, MASTER_PORT="29501") for n in (0, 1)]
    machine = with_environ(among(*ALL, *other), {"MASTER_PORT": "29500"})

    assert RANKS_ALIVE.look(replace(machine, job=200)).status is OK
    assert RANKS_ALIVE.look(machine).says == "MASTER_PORT=29501: local rank 2, 3 of 4 is gone"


def test_ranks_below_their_launcher_are_no_orphans() -> None:
    result = ORPHANS.look(among(*ALL))

    assert (result.status, result.says) == (OK, "4 ranks here, none without its launcher")


@for_each("command", ["/sbin/init", "/usr/lib/systemd/systemd", "tini", "sleep", "/opt/guest-agent"])
def test_a_rank_that_process_1_took_in_is_an_orphan(command: str) -> None:
    init = Process(1, 0, 0, "S", 0.0, (command,), None)

    result = ORPHANS.look(with_processes(empty_machine(), [init, rank(2, 202, ppid=1)]))

    assert result.status is BAD
    assert "rank 2 is pid 202 of user 1000" in result.says
    assert result.fix.startswith("ps -o pid,ppid,user,lstart,stat,cmd -p 202;")
    assert "pkill" not in result.fix


@for_each(
    "parent",
    [
        Process(1, 0, 0, "S", 0.0, ("/usr/bin/python3", "/usr/bin/torchrun"), {}),
        Process(1, 0, 0, "S", 0.0, ("/bin/bash", "/entrypoint.sh"), {}),
        Process(2, 0, 0, "S", 0.0, ("hidden: the parent is outside of this container",), {}),
    ],
)
def test_a_launcher_may_itself_be_process_1_or_not_be_seen(parent: Process) -> None:
    assert ORPHANS.look(with_processes(empty_machine(), [parent, rank(0, 200, ppid=1)])).status is OK


def test_a_users_systemd_takes_in_orphans_under_any_number() -> None:
    session = Process(812, 1, 1000, "S", 0.0, ("/usr/lib/systemd/systemd", "--user"), {})

    assert ORPHANS.look(with_processes(empty_machine(), [session, rank(0, 200, ppid=812)])).status is BAD


def test_where_processes_cannot_be_listed_nobody_is_an_orphan_and_nothing_is_ok() -> None:
    assert ORPHANS.look(empty_machine()).status is SKIPPED


# The meeting point.

HERE = {"MASTER_ADDR": "node-0", "MASTER_PORT": "29500"}


def meeting(environ: Mapping[str, str], found: str = "10.0.0.5       STREAM node-0\n", code: int = 0) -> System:
    machine = with_files(with_environ(empty_machine(), environ), {"/proc/net/fib_trie": FIB_TRIE})
    return with_outputs(machine, {"getent ahosts": Ran(code, found)})


@for_each("environ", [{}, {"MASTER_ADDR": "node-0"}, {"MASTER_PORT": "29500"}])
def test_without_a_meeting_point_there_is_nothing_to_look_up(environ: Mapping[str, str]) -> None:
    assert MASTER_ADDRESS.look(with_environ(empty_machine(), environ)).status is SKIPPED


@for_each(
    ("machine", "status", "says"),
    [
        (meeting(HERE), OK, "node-0 is 10.0.0.5, and port 29500 is free"),
        (meeting(HERE, "10.0.0.9       STREAM node-9\n"), OK, "check port 29500 there"),
        (meeting(HERE, "", 2), BAD, "node-0 does not resolve on this node"),
        (meeting({**HERE, "MASTER_PORT": "99999"}), BAD, "'99999' is not a port"),
        (meeting({**HERE, "MASTER_PORT": "port"}), BAD, "'port' is not a port"),
        (with_environ(empty_machine(), HERE), SKIPPED, "getent is not installed"),
    ],
)
def test_the_meeting_point_resolves_or_not(machine: System, status: CheckStatus, says: str) -> None:
    result = MASTER_ADDRESS.look(machine)

    assert result.status is status
    assert says in result.says


@for_each(
    ("environ", "status"),
    [
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, BAD),
        ({"SLURM_NNODES": "2"}, BAD),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, OK),
        ({}, OK),
    ],
)
def test_the_loopback_is_wrong_only_for_a_job_of_several_nodes(environ: Mapping[str, str], status: CheckStatus) -> None:
    machine = meeting({**HERE, **environ}, "127.0.1.1       STREAM node-0\n")

    assert MASTER_ADDRESS.look(machine).status is status


def held_by(pid: int, machine: System, *processes: Process) -> System:
    """`ss -ltnp` from /proc: the socket's inode is among the process's open files."""
    listening = with_files(machine, {"/proc/net/tcp": LISTENING, f"/proc/{pid}/fd/5": ""})
    return with_processes(with_links(listening, {f"/proc/{pid}/fd/5": "socket:[1125997]"}), processes)


def test_a_port_that_a_stranger_holds_is_bad_and_the_holder_is_named() -> None:
    stranger = Process(4242, 1, 1000, "S", 0.0, ("python", "-m", "http.server", "29500"), {})

    result = MASTER_ADDRESS.look(held_by(4242, meeting(HERE), stranger))

    assert result.status is BAD
    assert "port 29500 is held by pid 4242 (python -m http.server 29500)" in result.says


@pytest.mark.parametrize("holder", [100, 200])
def test_a_port_that_the_jobs_launcher_or_rank_holds_is_its_store(holder: int) -> None:
    result = MASTER_ADDRESS.look(held_by(holder, meeting(HERE), launcher(), *ALL))

    assert (result.status, result.says) == (OK, "node-0 is 10.0.0.5, and the job's store listens on 29500")


def test_a_port_whose_holder_cannot_be_seen_is_another_users() -> None:
    machine = with_files(meeting(HERE), {"/proc/net/tcp": LISTENING})

    assert "held by another user's process" in MASTER_ADDRESS.look(machine).says


def test_a_running_job_without_its_store_is_bad() -> None:
    machine = replace(with_processes(meeting(HERE), [launcher(), *ALL]), job=200)

    assert "the store is gone" in MASTER_ADDRESS.look(machine).says
    assert MASTER_ADDRESS.look(replace(machine, job=None)).status is OK


# Versions.

MODULE = "/proc/driver/nvidia/version"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.565.57.01"


def installed(torch: str, nccl: str = "2.27.3", files: Mapping[str, str | None] | None = None) -> System:
    packages = with_packages(empty_machine(), {"torch": torch, "nvidia-nccl-cu12": nccl}, REQUIRES)
    return with_files(packages, {MODULE: MODULE_565, LIBRARY: "", **(files or {})})


def test_versions_that_fit() -> None:
    result = VERSIONS.look(installed("2.8.0"))

    assert (result.status, result.says) == (OK, "torch 2.8.0, NCCL 2.27.3, driver 565.57.01")
    assert dict(result.details) == {"torch": "2.8.0", "NCCL": "2.27.3", "driver": "565.57.01"}


@for_each(
    ("machine", "says"),
    [
        (installed("2.13.0+cu130"), "CUDA 13, which needs a driver of 580 or newer"),
        (installed("2.8.0", nccl="2.26.2"), "torch requires nvidia-nccl-cu12 2.27.3, installed is 2.26.2"),
        (
            installed("2.8.0", files={LIBRARY: None, LIBRARY.replace("565.57.01", "570.144"): ""}),
            "the kernel module is 565.57.01, libcuda is 570.144",
        ),
    ],
)
def test_versions_that_do_not_fit(machine: System, says: str) -> None:
    result = VERSIONS.look(machine)

    assert result.status is BAD
    assert says in result.says


@for_each(
    ("machine", "says"),
    [
        (empty_machine(), "neither torch nor a driver was found"),
        (with_packages(empty_machine(), {"torch": "2.13.0+cpu"}), "torch 2.13.0+cpu"),
        (with_packages(empty_machine(), {"torch": "2.8.0+cu128"}), "torch 2.8.0+cu128"),
        (with_files(empty_machine(), {MODULE: MODULE_565}), "driver 565.57.01"),
    ],
)
def test_what_is_not_there_does_not_fit_anything_and_is_not_ok(machine: System, says: str) -> None:
    result = VERSIONS.look(machine)

    assert (result.status, result.says) == (SKIPPED, f"nothing to compare: {says}")


# The clock.


def telling(outputs: Mapping[str, str], *, kernel: bool | None = None) -> System:
    machine = with_outputs(empty_machine(), {command: Ran(0, text) for command, text in outputs.items()})
    if kernel is None:
        return machine
    return replace(machine, clock=lambda: KernelClock(synchronised=kernel, max_error_s=0.25))


@for_each(
    ("machine", "status", "says"),
    [
        (telling({"chronyc": CHRONY}), OK, "6.5e-06 s slow of its source, by chronyd"),
        (telling({"chronyc": CHRONY_ADRIFT, "timedatectl": TIMEDATECTL}), BAD, "7.81 s slow of its source"),
        (telling({"chronyc": CHRONY_ALONE}, kernel=True), BAD, "chronyd runs and has no source to follow"),
        (telling({"chronyc": "506 Cannot talk to daemon\n", "timedatectl": TIMEDATECTL}), OK, "by timedatectl"),
        (
            telling({"timedatectl": TIMEDATECTL.replace("yes", "no").replace(" active", " inactive")}),
            BAD,
            "no time service is active",
        ),
        (telling({"timedatectl": TIMEDATECTL.replace("yes", "no")}, kernel=False), SKIPPED, "a hypervisor"),
        (telling({}, kernel=True), OK, "the kernel's clock is synchronised, within 0.25 s"),
        (telling({}, kernel=False), SKIPPED, "the kernel reports no synchronisation"),
        (telling({}), SKIPPED, "the state of the clock is not known"),
    ],
)
def test_the_clock_is_kept_or_not_or_nobody_knows(machine: System, status: CheckStatus, says: str) -> None:
    result = CLOCK.look(machine)

    assert result.status is status
    assert says in result.says
