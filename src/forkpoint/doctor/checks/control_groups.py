"""Control groups: do limits on memory, CPU or processes affect the job?"""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

from forkpoint.doctor.checks.kernel import INTERVAL_S, read_number
from forkpoint.doctor.report import CheckResult, CheckStatus, bad, check, judged, ok, skipped
from forkpoint.doctor.system import Process, System

# ---------------------------------------------------------------------------------------------------------------------
# The control groups (v1 or v2) of a process: its own folder first, then those above it.

CGROUP_ROOT = "/sys/fs/cgroup"


class CgroupLine(NamedTuple):
    controllers: tuple[str, ...]
    """Empty for version 2."""
    path: str


def cgroup_folders(system: System, controller: str) -> tuple[str, ...]:
    """The folders with this controller's limits; a container sees its own group as the top."""
    lines = [_parse_cgroup_line(line) for line in (system.read(f"{system.proc}/cgroup") or "").splitlines()]
    older = next((line.path for line in lines if controller in line.controllers), None)
    newer = next((line.path for line in lines if not line.controllers), None)
    base, path = (f"{CGROUP_ROOT}/{controller}", older) if older is not None else (CGROUP_ROOT, newer)
    return tuple(dict.fromkeys(f"{base}{above}" for above in _upwards(path))) if path is not None else ()


def _parse_cgroup_line(line: str) -> CgroupLine:
    """`4:memory:/slurm/job_7` or `0::/user.slice`; a path may contain colons."""
    _, controllers, path = (*line.split(":", 2), "", "")[:3]
    return CgroupLine(tuple(name for name in controllers.split(",") if name), path)


def _upwards(path: str) -> Iterator[str]:
    """`/a/b`, `/a`, and the top, which is empty."""
    path = path.rstrip("/")
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""


def keyed(text: str | None) -> dict[str, int]:
    """Files with a name and a number per line: memory.events, cpu.stat."""
    fields = (line.split() for line in (text or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in fields if len(pair) == 2 and pair[1].isdecimal()}


_NO_LIMIT = 1 << 60
"""Version 1 writes a huge number instead of "no limit"."""


def _look_at_cgroup_memory(system: System) -> CheckResult:
    """Was anything in the job's control group killed for memory, and what is its limit?

    Its usage is reported but not judged: it includes cached files, which the kernel drops when memory is needed.
    """
    folders = cgroup_folders(system, "memory")
    own = next((folder for folder in folders if _memory_used(system, folder) is not None), None)
    if own is None:
        return skipped("no control group of this process reports memory")
    limit = _memory_limit(system, folders)
    details = (("memory limit", _gib(limit)), (f"count kills in {own}", str(_memory_kills(system, own))))
    if _memory_kills(system, own):
        return bad(
            f"the kernel killed {_memory_kills(system, own)} processes of {own} for memory; its limit is {_gib(limit)}",
            "raise the job's memory request, or use fewer loader workers, less prefetch and pinned memory; "
            "`dmesg | grep -i oom-kill` names the processes",
            *details,
        )
    return ok(f"nothing was killed for memory; {_gib(_memory_used(system, own))} used, limit {_gib(limit)}", *details)


def _memory_used(system: System, folder: str) -> int | None:
    newer = read_number(system, f"{folder}/memory.current")
    return newer if newer is not None else read_number(system, f"{folder}/memory.usage_in_bytes")


def _memory_limit(system: System, folders: tuple[str, ...]) -> int | None:
    """The smallest on the way up: a parent's limit applies to all its children together."""
    files = [f"{folder}/{name}" for folder in folders for name in ("memory.max", "memory.limit_in_bytes")]
    limits = [limit for file in files if (limit := read_number(system, file)) is not None and limit < _NO_LIMIT]
    return min(limits, default=None)


def _memory_kills(system: System, folder: str) -> int:
    events = system.read(f"{folder}/memory.events") or system.read(f"{folder}/memory.oom_control")
    return keyed(events).get("oom_kill", 0)


def _gib(number: int | None) -> str:
    return "none" if number is None else f"{number / (1 << 30):.1f} GiB"


CGROUP_MEMORY = check("cgroup-memory", _look_at_cgroup_memory)


_LOADER = "pt_data_worker"
"""What torch calls the process of a loader worker."""
_NAME_A_JOB = "name a process of a running job: forkpoint doctor --job PID"
_MORE_CPUS = "give the job more CPUs (`--cpus-per-task`, the container's CPU limit), or lower num_workers"


def _look_at_cgroup_cpu(system: System) -> CheckResult:
    """Has the job as many CPUs as it has ranks and loader workers?

    Torch warns when one loader has more workers than the process may use CPUs (torch/utils/data/dataloader.py,
    `_check_worker_number_rationality`), but it knows neither the other ranks nor a control group's quota. Here all processes
    that share this control group are counted, against the CPUs that affinity and quota leave them together. While ranks run,
    being throttled by the quota is bad, too.
    """
    ranks = _ranks_in_cgroup(system)
    cpus = _cpus_for_job(system, [f"/proc/{rank.pid}" for rank in ranks] or [system.proc])
    if cpus is None:
        return CheckResult(CheckStatus.SKIPPED, "neither affinity nor quota of this process can be read")
    details = (("CPUs", f"{cpus:g}"),)
    if not ranks:
        return _without_ranks(system, cpus, details)
    busy = len(ranks) - len(_children_of_ranks(ranks)) + len(_loader_workers(system, ranks))
    if busy > ceil(cpus):
        return bad(f"{busy} ranks and loader workers share {cpus:g} CPUs", _MORE_CPUS, *details)
    throttled = _times_throttled(system)
    if throttled:
        return bad(f"the CPU quota throttled the job {throttled} times in {INTERVAL_S:g} s", _MORE_CPUS, *details)
    return ok(f"{busy} ranks and loader workers, {cpus:g} CPUs", *details)


def _ranks_in_cgroup(system: System) -> list[Process]:
    """Those in the same control group: other jobs on the node have their own CPUs."""
    group = system.read(f"{system.proc}/cgroup")
    ranks = [process for process in system.processes() if "LOCAL_RANK" in (process.environ or {})]
    return [rank for rank in ranks if group is not None and system.read(f"/proc/{rank.pid}/cgroup") == group]


def _without_ranks(system: System, cpus: float, details: tuple[tuple[str, str], ...]) -> CheckResult:
    """Before the job starts, only the launcher's number of ranks can be compared."""
    ranks = system.environ.get("LOCAL_WORLD_SIZE", "")
    if not ranks.isdecimal():
        return CheckResult(
            CheckStatus.SKIPPED,
            f"{cpus:g} CPUs; no rank runs in this control group to compare with",
            _NAME_A_JOB,
            details,
        )
    if int(ranks) > ceil(cpus):
        return bad(f"{ranks} ranks will share {cpus:g} CPUs", _MORE_CPUS, *details)
    return ok(f"{cpus:g} CPUs for {ranks} ranks and their loader workers", *details)


def _children_of_ranks(ranks: Sequence[Process]) -> list[Process]:
    """Children inherit the ranks' environment, so they are in this list, too."""
    pids = {process.pid for process in ranks}
    return [process for process in ranks if process.ppid in pids]


def _loader_workers(system: System, ranks: Sequence[Process]) -> list[Process]:
    """Other children, such as compile workers, mostly sleep."""
    names = (
        (process, (system.read(f"/proc/{process.pid}/comm") or "").strip()) for process in _children_of_ranks(ranks)
    )
    return [process for process, name in names if name == _LOADER]


def _cpus_for_job(system: System, folders: Sequence[str]) -> float | None:
    allowed = {cpu for folder in folders for cpu in _cpus_allowed(system, folder)}
    known = [number for number in (float(len(allowed)) or None, _cpu_quota(system)) if number is not None]
    return min(known, default=None)


def _cpus_allowed(system: System, folder: str) -> Iterator[int]:
    """`Cpus_allowed_list: 0-3,8`. Launchers may give each rank its own CPUs."""
    lines = (system.read(f"{folder}/status") or "").splitlines()
    listed = next((line.partition(":")[2].strip() for line in lines if line.startswith("Cpus_allowed_list:")), "")
    for span in listed.split(",") if listed else ():
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _cpu_quota(system: System) -> float | None:
    """The smallest on the way up; None if there is none."""
    quotas: list[float] = []
    for folder in cgroup_folders(system, "cpu"):
        newer = (system.read(f"{folder}/cpu.max") or "").split()
        if len(newer) == 2 and newer[0].isdecimal():
            quotas.append(int(newer[0]) / int(newer[1]))
        older, period = (read_number(system, f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
        if older and period and older > 0:
            quotas.append(older / period)
    return min(quotas, default=None)


def _times_throttled(system: System) -> int:
    files = [f"{folder}/cpu.stat" for folder in cgroup_folders(system, "cpu")[:1]]
    before = [keyed(system.read(file)).get("nr_throttled", 0) for file in files]
    if _cpu_quota(system) is None:
        return 0
    system.pause(INTERVAL_S)
    after = [keyed(system.read(file)).get("nr_throttled", 0) for file in files]
    return sum(after) - sum(before)


CGROUP_CPU = check("cgroup-cpu", _look_at_cgroup_cpu)


def _look_at_cgroup_pids(system: System) -> CheckResult:
    """Did the control group's limit on processes and threads refuse a new one? Any refusal is bad: a worker, a thread of NCCL
    or a dump was not started.
    """
    folders = [folder for folder in cgroup_folders(system, "pids") if system.read(f"{folder}/pids.current") is not None]
    if not folders:
        return skipped("no control group of this process counts processes")
    limits = [limit for folder in folders if (limit := read_number(system, f"{folder}/pids.max")) is not None]
    details = (("pids limit", str(min(limits, default="none"))),)
    refused = {folder: keyed(system.read(f"{folder}/pids.events")).get("max", 0) for folder in folders}
    return judged(
        [f"{folder} refused {count} new processes or threads" for folder, count in refused.items() if count],
        "raise the pids limit (`docker run --pids-limit`, kubelet's podPidsLimit, systemd's TasksMax), or fewer workers",
        f"no process or thread was refused; limit {details[0][1]}",
        *details,
    )


CGROUP_PIDS = check("cgroup-pids", _look_at_cgroup_pids)
