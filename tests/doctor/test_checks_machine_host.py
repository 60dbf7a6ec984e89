"""Checks of shared memory, limits, control groups and room for dumps."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from doctor.machine_samples import machine, text_of, with_facts
from forkpoint.doctor.checks.control_groups import CGROUP_CPU, CGROUP_MEMORY, CGROUP_PIDS
from forkpoint.doctor.checks.host import LIMITS, SHARED_MEMORY
from forkpoint.doctor.checks.recorder import DUMP_SPACE
from forkpoint.doctor.report import CheckStatus
from forkpoint.doctor.system import (
    Disk,
    FileFacts,
    Process,
    System,
    empty_machine,
    with_disk,
    with_environ,
    with_files,
    with_packages,
    with_processes,
)
from looping import for_each

GIB = 1 << 30
TOP = "/sys/fs/cgroup"
SLURM = {"/proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_7/step_0\n"}
OWN, ABOVE = f"{TOP}/system.slice/slurmstepd.scope/job_7/step_0", f"{TOP}/system.slice/slurmstepd.scope/job_7"
OLDER = {"/proc/self/cgroup": "9:name=systemd:/\n8:pids:/job:7\n4:memory:/job:7\n1:cpu,cpuacct:/job:7\n0::/\n"}


def process(pid: int, ppid: int = 1, **environ: str) -> Process:
    return Process(pid, ppid, 1000, "S", 0.0, ("python", "train.py"), environ)


def shared(total: int, free: int) -> System:
    return with_disk(empty_machine(), "/dev/shm", Disk("/dev/shm", "tmpfs", total, free, 0, 0))


def with_file_in_shm(system: System, name: str, users: Sequence[str | None]) -> System:
    """A file of NCCL's, and processes with these maps; None may not be read."""
    maps = {f"/proc/{pid}/maps": text for pid, text in enumerate(users, 100) if text is not None}
    folders = {f"/proc/{pid}/status": "" for pid in range(100, 100 + len(users))}
    seen = with_files(system, {f"/dev/shm/{name}": "", **maps, **folders})
    facts = {f"/dev/shm/{name}": FileFacts(9637892, 1000, 0.0, is_folder=False)}
    return with_processes(with_facts(seen, facts), [process(pid) for pid in range(100, 100 + len(users))])


@for_each(
    ("total", "free", "status"),
    [
        (64 << 20, 64 << 20, CheckStatus.BAD),
        (16 * GIB, GIB - 1, CheckStatus.BAD),
        (16 * GIB, GIB, CheckStatus.OK),
        (65 << 20, 65 << 20, CheckStatus.BAD),
    ],
)
def test_shared_memory_needs_a_gigabyte(total: int, free: int, status: CheckStatus) -> None:
    assert SHARED_MEMORY.look(shared(total, free)).status is status


def test_dockers_own_size_is_named_with_the_option_that_changes_it() -> None:
    result = SHARED_MEMORY.look(shared(64 << 20, 64 << 20))

    assert "64 MiB" in result.says
    assert result.fix
    assert "--shm-size" in result.fix


def test_a_machine_without_shared_memory_is_skipped() -> None:
    assert SHARED_MEMORY.look(empty_machine()).status is CheckStatus.SKIPPED


def test_leftovers_are_named_with_their_owner_and_nobody_is_told_to_delete_them() -> None:
    system = with_file_in_shm(shared(16 * GIB, 1), "nccl-WU88OE", ["7f00-7f01 rw-s 0 00:19 7 /dev/shm/nccl-other\n"])

    result = SHARED_MEMORY.look(system)

    assert result.status is CheckStatus.BAD
    assert "nccl-WU88OE (9 MiB, user 1000)" in result.says
    assert result.fix
    assert "fuser" in result.fix
    assert "rm " not in result.fix


@for_each(
    ("name", "users"),
    [
        ("nccl-WU88OE", ["7f00-7f01 rw-s 0 00:19 7 /dev/shm/nccl-WU88OE\n"]),
        ("nccl-WU88OE", ["", None]),
        ("someone-elses", [""]),
    ],
    ids=["still mapped", "not every process can be seen", "not ours"],
)
def test_a_file_that_may_be_in_use_is_no_leftover(name: str, users: list[str | None]) -> None:
    assert name not in SHARED_MEMORY.look(with_file_in_shm(shared(16 * GIB, GIB), name, users)).says


def limited(**changes: str) -> System:
    """The recorded limits, in which some soft limits are others."""
    text = text_of("limits_vm.txt")
    for title, value in changes.items():
        line = next(line for line in text.splitlines() if line.startswith(f"Max {title.replace('_', ' ')} "))
        text = text.replace(line, f"{line[:26]}{value:<21}{line[47:]}")
    return machine(texts={"/proc/self/limits": text})


RDMA = {"/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n"}


def test_recorded_limits_are_ok_without_rdma_and_bad_with_it() -> None:
    result = LIMITS.look(with_files(limited(), RDMA))

    assert LIMITS.look(limited()).status is CheckStatus.OK
    assert (result.status, result.says.split(",")[0]) == (CheckStatus.BAD, "only 8192 kB may be locked")
    assert LIMITS.look(with_files(limited(locked_memory="unlimited"), RDMA)).status is CheckStatus.OK


@for_each(
    ("files", "environ", "status"),
    [
        ("1024", {}, CheckStatus.BAD),
        ("1025", {}, CheckStatus.OK),
        ("unlimited", {"WORLD_SIZE": "100000"}, CheckStatus.OK),
        ("20000", {"WORLD_SIZE": "10000"}, CheckStatus.OK),
        ("20000", {"WORLD_SIZE": "10001"}, CheckStatus.BAD),
    ],
)
def test_open_files_must_do_for_the_world(files: str, environ: dict[str, str], status: CheckStatus) -> None:
    assert LIMITS.look(with_environ(limited(open_files=files), environ)).status is status


@for_each(
    ("stack", "nccl", "status"),
    [
        ("unlimited", "2.27.5", CheckStatus.BAD),
        ("unlimited", "2.28.3", CheckStatus.OK),
        ("unlimited", None, CheckStatus.OK),
        ("8388608", "2.27.5", CheckStatus.OK),
    ],
)
def test_an_unlimited_stack_is_bad_for_older_nccl(stack: str, nccl: str | None, status: CheckStatus) -> None:
    system = with_packages(limited(stack_size=stack), {"nvidia-nccl-cu12": nccl, "nvidia-nccl-cu13": None})

    assert LIMITS.look(system).status is status


def test_limits_of_the_job_are_read_where_one_is_named() -> None:
    system = with_files(
        limited(), {"/proc/77/limits": "Max open files            256                  256     files\n"}
    )

    assert LIMITS.look(replace(system, job=77)).status is CheckStatus.BAD
    assert LIMITS.look(replace(system, job=78)).status is CheckStatus.SKIPPED


def newer_memory(kills: int, **texts: str) -> System:
    events = f"low 0\nhigh 0\nmax 12\noom {kills}\noom_kill {kills}\noom_group_kill 0\n"
    files = {f"{OWN}/memory.current": "3221225472\n", f"{OWN}/memory.max": "max\n", f"{OWN}/memory.events": events}
    return machine(texts={**SLURM, **files, f"{ABOVE}/memory.max": "68719476736\n", **texts})


def older_memory(kills: int) -> System:
    folder = f"{TOP}/memory/job:7"
    files = {
        f"{folder}/memory.usage_in_bytes": "3221225472\n",
        f"{folder}/memory.limit_in_bytes": "68719476736\n",
        f"{folder}/memory.oom_control": f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n",
        f"{TOP}/memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    return machine(texts={**OLDER, **files})


@pytest.mark.parametrize("made", [newer_memory, older_memory])
def test_a_kill_for_memory_in_the_jobs_group_is_bad(made: object) -> None:
    sound, killed = CGROUP_MEMORY.look(made(0)), CGROUP_MEMORY.look(made(2))

    assert (sound.status, sound.says) == (CheckStatus.OK, "nothing was killed for memory; 3.0 GiB used, limit 64.0 GiB")
    assert killed.status is CheckStatus.BAD
    assert "killed 2 processes" in killed.says


def test_the_largest_number_of_older_groups_is_no_limit() -> None:
    folder = f"{TOP}/memory/job:7"
    files = {f"{folder}/memory.usage_in_bytes": "0\n", f"{folder}/memory.limit_in_bytes": "9223372036854771712\n"}

    assert ("memory limit", "none") in CGROUP_MEMORY.look(machine(texts={**OLDER, **files})).details


def test_a_container_sees_its_group_as_the_top() -> None:
    files = {f"{TOP}/memory.current": "1\n", f"{TOP}/memory.events": "oom_kill 1\n"}

    inside = machine(texts={"/proc/self/cgroup": "0::/\n", **files})
    outside_path = machine(texts={"/proc/self/cgroup": "0::/kubepods/pod7\n", **files})

    assert CGROUP_MEMORY.look(inside).status is CheckStatus.BAD
    assert CGROUP_MEMORY.look(outside_path).status is CheckStatus.BAD


@for_each("check", [CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU])
def test_a_machine_without_control_groups_is_skipped(check: object) -> None:
    assert check.look(empty_machine()).status is CheckStatus.SKIPPED


@for_each(("refused", "status"), [(0, CheckStatus.OK), (3, CheckStatus.BAD)])
@for_each(
    ("where", "folder"), [(SLURM, OWN), (SLURM, ABOVE), (OLDER, f"{TOP}/pids/job:7")], ids=["own", "above", "older"]
)
def test_a_refused_process_is_bad_wherever_the_limit_stands(
    where: dict[str, str], folder: str, refused: int, status: CheckStatus
) -> None:
    files = {
        f"{folder}/pids.current": "9\n",
        f"{folder}/pids.max": "512\n",
        f"{folder}/pids.events": f"max {refused}\n",
    }

    assert CGROUP_PIDS.look(machine(texts={**where, **files})).status is status


def cpus(quota: str = "max 100000\n", allowed: str = "0-7", later: dict[str, str] | None = None) -> System:
    files = {
        **SLURM,
        "/proc/self/status": f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\n",
        f"{ABOVE}/cpu.max": quota,
        f"{OWN}/cpu.stat": "usage_usec 9\nnr_periods 10\nnr_throttled 4\n",
    }
    return machine(texts=files, later=later or {})


def job(
    system: System, ranks: int, loaders: int, name: str = "pt_data_worker", group: str | None = None, allowed: str = ""
) -> System:
    """Each rank has as many children; they inherit its environment, control group and CPUs."""
    mothers = [process(pid, LOCAL_RANK=str(pid)) for pid in range(1000, 1000 + ranks)]
    children = [process(2000 + at, ppid=1000 + at % ranks, LOCAL_RANK="0") for at in range(ranks * loaders)]
    folders = [f"/proc/{one.pid}" for one in (*mothers, *children)]
    status = f"Cpus_allowed_list:\t{allowed}\n" if allowed else system.read("/proc/self/status")
    files = {
        **{f"/proc/{child.pid}/comm": f"{name}\n" for child in children},
        **{f"{folder}/cgroup": group or system.read("/proc/self/cgroup") for folder in folders},
        **{f"{folder}/status": status for folder in folders},
    }
    return with_processes(with_files(system, files), [*mothers, *children])


@for_each(
    ("quota", "allowed", "ranks", "loaders", "status"),
    [
        ("max 100000\n", "0-7", 2, 3, CheckStatus.OK),
        ("max 100000\n", "0-7", 2, 4, CheckStatus.BAD),
        ("max 100000\n", "0-3,8-9", 2, 3, CheckStatus.BAD),
        ("250000 100000\n", "0-7", 3, 0, CheckStatus.OK),
        ("250000 100000\n", "0-7", 4, 0, CheckStatus.BAD),
    ],
)
def test_ranks_and_loader_workers_need_a_cpu_each(
    quota: str, allowed: str, ranks: int, loaders: int, status: CheckStatus
) -> None:
    assert CGROUP_CPU.look(job(cpus(quota, allowed), ranks, loaders)).status is status


def test_children_that_compile_do_not_count() -> None:
    assert CGROUP_CPU.look(job(cpus(), 2, 30, name="pt_compile_wrk")).status is CheckStatus.OK


def test_ranks_of_other_jobs_have_cpus_of_their_own() -> None:
    assert CGROUP_CPU.look(job(cpus(), 9, 0)).status is CheckStatus.BAD
    assert CGROUP_CPU.look(job(cpus(), 9, 0, group="0::/job_8\n")).status is CheckStatus.SKIPPED


def test_cpus_of_all_ranks_count_where_each_is_bound_to_some() -> None:
    system = job(cpus(allowed="0-1"), 2, 1, allowed="0-1")
    bound = with_files(system, {"/proc/1001/status": "Cpus_allowed_list:\t2-3\n"})

    assert CGROUP_CPU.look(system).says == "4 ranks and loader workers share 2 CPUs"
    assert CGROUP_CPU.look(bound).says == "4 ranks and loader workers, 4 CPUs"


def test_a_job_that_its_quota_holds_back_is_bad() -> None:
    held = {f"{OWN}/cpu.stat": "usage_usec 9\nnr_periods 20\nnr_throttled 9\n"}

    result = CGROUP_CPU.look(job(cpus("400000 100000\n", later=held), 2, 0))

    assert (result.status, result.says) == (CheckStatus.BAD, "the CPU quota throttled the job 5 times in 1 s")
    assert CGROUP_CPU.look(job(cpus("400000 100000\n"), 2, 0)).status is CheckStatus.OK


def test_the_older_quota_counts_as_the_newer() -> None:
    files = {f"{TOP}/cpu/job:7/cpu.cfs_quota_us": "200000\n", f"{TOP}/cpu/job:7/cpu.cfs_period_us": "100000\n"}
    none = {**files, f"{TOP}/cpu/job:7/cpu.cfs_quota_us": "-1\n"}
    status = {"/proc/self/status": "Cpus_allowed_list:\t0-7\n"}

    assert CGROUP_CPU.look(job(machine(texts={**OLDER, **status, **files}), 4, 0)).status is CheckStatus.BAD
    assert CGROUP_CPU.look(job(machine(texts={**OLDER, **status, **none}), 4, 0)).status is CheckStatus.OK


@for_each(
    ("environ", "status"),
    [
        ({}, CheckStatus.SKIPPED),
        ({"LOCAL_WORLD_SIZE": "8"}, CheckStatus.OK),
        ({"LOCAL_WORLD_SIZE": "9"}, CheckStatus.BAD),
    ],
)
def test_before_a_job_runs_its_number_of_ranks_is_compared(environ: dict[str, str], status: CheckStatus) -> None:
    result = CGROUP_CPU.look(with_environ(cpus(), environ))

    assert result.status is status
    assert result.details == (("CPUs", "8"),)


def dumps(free: int, inodes_free: int = 100, **environ: str) -> System:
    disk = Disk("/dumps", "ext4", GIB, free, 1000, inodes_free)
    settings = {"TORCH_FR_DUMP_TEMP_FILE": "/dumps/rank_", "TORCH_FR_BUFFER_SIZE": "20000", **environ}
    return with_environ(with_disk(with_packages(empty_machine(), {"torch": "2.13.0"}), "/dumps", disk), settings)


@for_each(
    ("system", "status"),
    [
        (dumps(160_000_000), CheckStatus.OK),
        (dumps(159_999_999), CheckStatus.BAD),
        (dumps(20_000_000, LOCAL_WORLD_SIZE="1"), CheckStatus.OK),
        (dumps(GIB, inodes_free=7), CheckStatus.BAD),
        (dumps(GIB, TORCH_FR_BUFFER_SIZE="0"), CheckStatus.SKIPPED),
        (with_environ(dumps(GIB), {"TORCH_FR_DUMP_TEMP_FILE": "/elsewhere/rank_"}), CheckStatus.SKIPPED),
        (with_packages(dumps(GIB), {"torch": None}), CheckStatus.SKIPPED),
    ],
    ids=["fits", "does not fit", "one rank", "no inodes", "recorder off", "no such disk", "no torch"],
)
def test_dumps_of_all_ranks_need_room(system: System, status: CheckStatus) -> None:
    assert DUMP_SPACE.look(system).status is status
