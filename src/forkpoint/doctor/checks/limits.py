"""What this machine lets the job use: shared memory, ulimits and control groups."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from forkpoint.doctor.cgroup import ROOT, cgroup_folders, keyed
from forkpoint.doctor.check import Check, CheckResult, CheckStatus, bad, ok, skipped
from forkpoint.doctor.counters import INTERVAL_S, read_number
from forkpoint.doctor.overlay import with_disk, with_files, with_processes
from forkpoint.doctor.system import Disk, Process, System, Unanswered

SHM = "/dev/shm"  # noqa: S108 - looked at, never written
DOCKER_DEFAULT = 64 << 20
FREE_AT_LEAST = 1 << 30
_SHM_PREFIXES = ("nccl-", "torch_", "sem.loky-", "psm_")
"""How NCCL's and Python's files are called."""
_SHOWN_LEFTOVERS = 5


@dataclass(frozen=True, slots=True)
class Leftover:
    name: str
    size: int
    uid: int


def _look_at_shared_memory(system: System) -> CheckResult:
    """Is there room in /dev/shm, and who owns the files in it?

    Loader workers hand their batches over through it, and NCCL its buffers within a node. Docker gives 64 MB unless told
    otherwise. At least 1 GB should be free (NCCL's troubleshooting guide). Leftovers are named with their owner and never
    to be deleted unseen: a file without a mapping that can be seen here may be another container's.
    """
    disk = system.disk(SHM)
    if isinstance(disk, Unanswered):
        return skipped(disk.why)
    leftovers = _leftovers(system)
    details = ((SHM, _mib_or_gib(disk.total)),)
    if disk.total <= DOCKER_DEFAULT:
        return bad(
            f"{SHM} is {_mib_or_gib(disk.total)}, which is what Docker gives unless told otherwise",
            "`docker run --shm-size=16g` or `--ipc=host`; in Kubernetes an emptyDir with `medium: Memory` on /dev/shm",
            *details,
        )
    if disk.free < FREE_AT_LEAST:
        return bad(
            f"{_mib_or_gib(disk.free)} of {_mib_or_gib(disk.total)} are free{_told_leftovers(leftovers)}",
            _fix_leftovers(leftovers),
            *details,
        )
    return ok(f"{_mib_or_gib(disk.free)} of {_mib_or_gib(disk.total)} are free{_told_leftovers(leftovers)}", *details)


def _leftovers(system: System) -> tuple[Leftover, ...]:
    """Files of NCCL and Python that no process which can be seen has mapped; none where not all can be seen."""
    files = [name for name in system.names(SHM) if name.startswith(_SHM_PREFIXES)]
    if not files:
        return ()
    mapped: set[str] = set()
    for process in system.processes():
        maps = system.read(f"/proc/{process.pid}/maps")
        if maps is None and system.names(f"/proc/{process.pid}"):
            return ()
        mapped.update(name for name in files if f"{SHM}/{name}" in (maps or ""))
    return tuple(_leftover_facts(system, [name for name in files if name not in mapped]))


def _leftover_facts(system: System, names: Sequence[str]) -> Iterator[Leftover]:
    for name in names:
        facts = system.stat(f"{SHM}/{name}")
        if facts and not facts.is_folder:
            yield Leftover(name, facts.size, facts.uid)


def _told_leftovers(leftovers: Sequence[Leftover]) -> str:
    if not leftovers:
        return ""
    largest = sorted(leftovers, key=lambda one: -one.size)[:_SHOWN_LEFTOVERS]
    names = ", ".join(f"{one.name} ({_mib_or_gib(one.size)}, user {one.uid})" for one in largest)
    return f"; {len(leftovers)} files that no process seen here has open: {names}"


def _fix_leftovers(leftovers: Sequence[Leftover]) -> str:
    if not leftovers:
        return "find who fills it: `du -ah /dev/shm | sort -h | tail` and `fuser -v /dev/shm/*`; or give the job more of it"
    return (
        "ask `fuser -v /dev/shm/*` as root on the host first: removing nccl-* files of a running job, whoever owns it, "
        "breaks it. With no job on the node, their owner removes them"
    )


def _mib_or_gib(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= 1 << 30 else f"{number / (1 << 20):.0f} MiB"


def _inject_shared_memory(system: System) -> System:
    small = Disk(SHM, "tmpfs", DOCKER_DEFAULT, DOCKER_DEFAULT, 0, 0)
    disk = system.disk(SHM)
    return with_disk(
        system, SHM, small if isinstance(disk, Unanswered) else replace(disk, total=DOCKER_DEFAULT, free=0)
    )


SHARED_MEMORY = Check(
    name="shared-memory",
    title="room in /dev/shm",
    why="When it is full, loader workers die of a bus error and NCCL fails to start: `No space left on device (28)`.",
    look=_look_at_shared_memory,
    inject=_inject_shared_memory,
)


LOGIN_DEFAULT = 1024
_STACK_MENDED = (2, 28)
_LIMIT_LINE = re.compile(r"(Max [a-z ]+?) {2,}(\w+) +(\w+)")
_LIMIT_NAMES = {
    "Max locked memory": "memlock",
    "Max open files": "nofile",
    "Max stack size": "stack",
    "Max processes": "nproc",
}
_UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True)
class Ulimit:
    soft: int | None
    """None is unlimited."""
    printed: str


def _look_at_limits(system: System) -> CheckResult:
    """Limits of the process (ulimit): locked memory, open files, stack.

    Locked memory must be unlimited where RDMA is used: registering a buffer locks it (NCCL's troubleshooting guide). Of open
    files, 1024 is what a login shell gets and what loader workers use up; the store on rank 0 and gloo keep one connection to
    each rank, so that fewer than twice the world cannot do. An unlimited stack made NCCL before 2.28 start its threads with
    2 MB, which overflow at start-up. The number of processes is compared between nodes only.
    """
    limits = _read_limits(system.read(f"{system.proc}/limits") or "")
    if not limits:
        return skipped(f"{system.proc}/limits cannot be read")
    trouble = list(_limit_trouble(system, limits))
    details = tuple((name, limit.printed) for name, limit in limits.items())
    if trouble:
        return bad("; ".join(says for says, _ in trouble), "; ".join(fix for _, fix in trouble), *details)
    rdma = "" if _has_rdma(system) else " (memlock is not judged: no RDMA adapter is here)"
    return ok(f"{', '.join(f'{name} {value}' for name, value in details)}{rdma}", *details)


def _read_limits(text: str) -> dict[str, Ulimit]:
    found = {match[1]: match[2] for line in text.splitlines() if (match := _LIMIT_LINE.match(line))}
    return {
        name: Ulimit(None if found[title] == _UNLIMITED else int(found[title]), found[title])
        for title, name in _LIMIT_NAMES.items()
        if title in found
    }


def _limit_trouble(system: System, limits: Mapping[str, Ulimit]) -> Iterator[tuple[str, str]]:
    """What is wrong, and the fix."""
    memlock = limits.get("memlock")
    if memlock and memlock.soft is not None and _has_rdma(system):
        yield (
            f"only {memlock.soft >> 10} kB may be locked, and RDMA locks every buffer it registers",
            "`ulimit -l unlimited`: limits.conf, LimitMEMLOCK=infinity of slurmd or containerd, `--ulimit memlock=-1`",
        )
    files, world = limits.get("nofile"), system.environ.get("WORLD_SIZE", "")
    needed = max(LOGIN_DEFAULT + 1, 2 * int(world) if world.isdecimal() else 0)
    if files and files.soft is not None and files.soft < needed:
        yield (
            f"{files.soft} files may be open, at least {needed} are needed",
            "`ulimit -n 131072` before the job starts",
        )
    stack, nccl = limits.get("stack"), _nccl_version(system)
    if stack and stack.soft is None and nccl and nccl < _STACK_MENDED:
        yield f"the stack is unlimited, with which NCCL {nccl[0]}.{nccl[1]} may crash", "`ulimit -s 8192`, or NCCL 2.28"


def _has_rdma(system: System) -> bool:
    return bool(system.names("/sys/class/infiniband"))


def _nccl_version(system: System) -> tuple[int, int] | None:
    found = system.package("nvidia-nccl-cu13") or system.package("nvidia-nccl-cu12")
    parts = found.version.split(".") if found else []
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and all(part.isdecimal() for part in parts[:2]) else None


def _inject_limits(system: System) -> System:
    line = "Max open files            1024                 1048576              files     \n"
    return with_files(system, {f"{system.proc}/limits": line})


LIMITS = Check(
    name="limits",
    title="limits on memory, files and stack",
    why="`ibv_reg_mr` fails, `Too many open files`, or a crash at start-up on the one node that was set up differently.",
    look=_look_at_limits,
    inject=_inject_limits,
)


_NO_LIMIT = 1 << 60
"""Version 1 writes the largest number it can in place of none."""


def _look_at_cgroup_memory(system: System) -> CheckResult:
    """Was anything in the job's control group killed for memory, and what is its limit?

    How full it is is told and not judged: it counts cached files too, which the kernel gives up when memory is wanted.
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
    """The smallest on the way up: the parent's counts for all its children together."""
    files = [f"{folder}/{name}" for folder in folders for name in ("memory.max", "memory.limit_in_bytes")]
    limits = [limit for file in files if (limit := read_number(system, file)) is not None and limit < _NO_LIMIT]
    return min(limits, default=None)


def _memory_kills(system: System, folder: str) -> int:
    events = system.read(f"{folder}/memory.events") or system.read(f"{folder}/memory.oom_control")
    return keyed(events).get("oom_kill", 0)


def _gib(number: int | None) -> str:
    return "none" if number is None else f"{number / (1 << 30):.1f} GiB"


def _inject_cgroup_memory(system: System) -> System:
    return with_files(
        system,
        {
            f"{system.proc}/cgroup": "0::/\n",
            f"{ROOT}/memory.current": "8589934592\n",
            f"{ROOT}/memory.max": "8589934592\n",
            f"{ROOT}/memory.events": "low 0\nhigh 0\nmax 70\noom 1\noom_kill 1\noom_group_kill 0\n",
        },
    )


CGROUP_MEMORY = Check(
    name="cgroup-memory",
    title="nothing in the job's control group was killed for memory",
    why="A rank or loader worker that is killed writes no dump; its peers hang, and the job looks like a network fault.",
    look=_look_at_cgroup_memory,
    inject=_inject_cgroup_memory,
)


_LOADER = "pt_data_worker"
"""What torch calls the process of a loader worker."""
_NAME_A_JOB = "name a process of a running job: forkpoint doctor --job PID"
_MORE_CPUS = "give the job more CPUs (`--cpus-per-task`, the container's CPU limit), or lower num_workers"


def _look_at_cgroup_cpu(system: System) -> CheckResult:
    """Has the job as many CPUs as it has ranks and loader workers?

    Torch warns when one loader has more workers than the process may use CPUs (torch/utils/data/dataloader.py,
    `_check_worker_number_rationality`), but it knows neither of the other ranks nor of a control group's quota. Here all of
    them count that share this control group, against the CPUs that affinity and quota leave them together. While ranks run,
    being held back by the quota is bad too.
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
        return bad(f"the CPU quota held the job back {throttled} times in {INTERVAL_S:g} s", _MORE_CPUS, *details)
    return ok(f"{busy} ranks and loader workers, {cpus:g} CPUs", *details)


def _ranks_in_cgroup(system: System) -> list[Process]:
    """Those in the same control group: other jobs of the node have CPUs of their own."""
    group = system.read(f"{system.proc}/cgroup")
    ranks = [process for process in system.processes() if "LOCAL_RANK" in (process.environ or {})]
    return [rank for rank in ranks if group is not None and system.read(f"/proc/{rank.pid}/cgroup") == group]


def _without_ranks(system: System, cpus: float, details: tuple[tuple[str, str], ...]) -> CheckResult:
    """Before it starts, the launcher's number of ranks is all there is to compare with."""
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
    """Children of ranks have the ranks' environment."""
    pids = {process.pid for process in ranks}
    return [process for process in ranks if process.ppid in pids]


def _loader_workers(system: System, ranks: Sequence[Process]) -> list[Process]:
    """Other children, such as those that compile, mostly sleep."""
    names = (
        (process, (system.read(f"/proc/{process.pid}/comm") or "").strip()) for process in _children_of_ranks(ranks)
    )
    return [process for process, name in names if name == _LOADER]


def _cpus_for_job(system: System, folders: Sequence[str]) -> float | None:
    allowed = {cpu for folder in folders for cpu in _cpus_allowed(system, folder)}
    known = [number for number in (float(len(allowed)) or None, _cpu_quota(system)) if number is not None]
    return min(known, default=None)


def _cpus_allowed(system: System, folder: str) -> Iterator[int]:
    """`Cpus_allowed_list: 0-3,8`. Launchers may give each rank CPUs of its own."""
    lines = (system.read(f"{folder}/status") or "").splitlines()
    listed = next((line.partition(":")[2].strip() for line in lines if line.startswith("Cpus_allowed_list:")), "")
    for span in listed.split(",") if listed else ():
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _cpu_quota(system: System) -> float | None:
    """The smallest on the way up; None where there is none."""
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


def _inject_cgroup_cpu(system: System) -> System:
    """Sixteen ranks on two CPUs."""
    pids = range(2, 18)
    folders = [system.proc, *(f"/proc/{pid}" for pid in pids)]
    few = {f"{folder}/cgroup": "0::/\n" for folder in folders}
    few |= {f"{folder}/status": "Cpus_allowed_list:\t0-1\n" for folder in folders}
    ranks = [Process(pid, 1, 0, "R", system.now(), ("python", "train.py"), {"LOCAL_RANK": str(pid)}) for pid in pids]
    return with_processes(with_files(system, few), ranks)


CGROUP_CPU = Check(
    name="cgroup-cpu",
    title="CPUs for every rank and loader worker",
    why="A starved loader or main thread makes its rank late for the collective, and all others wait.",
    look=_look_at_cgroup_cpu,
    inject=_inject_cgroup_cpu,
)


def _look_at_cgroup_pids(system: System) -> CheckResult:
    """Did the control group's limit on processes and threads refuse a new one? Any refusal is bad: a worker, a thread of NCCL
    or a dump was not started.
    """
    folders = [folder for folder in cgroup_folders(system, "pids") if system.read(f"{folder}/pids.current") is not None]
    if not folders:
        return skipped("no control group of this process counts processes")
    limits = [limit for folder in folders if (limit := read_number(system, f"{folder}/pids.max")) is not None]
    details = (("pids limit", str(min(limits, default="none"))),)
    refused = [(folder, count) for folder in folders if (count := _pids_refused(system, folder))]
    if refused:
        return bad(
            "; ".join(f"{folder} refused {count} new processes or threads" for folder, count in refused),
            "raise the pids limit (`docker run --pids-limit`, kubelet's podPidsLimit, systemd's TasksMax), or fewer workers",
            *details,
        )
    return ok(f"no process or thread was refused; limit {details[0][1]}", *details)


def _pids_refused(system: System, folder: str) -> int:
    return keyed(system.read(f"{folder}/pids.events")).get("max", 0)


def _inject_cgroup_pids(system: System) -> System:
    return with_files(
        system,
        {
            f"{system.proc}/cgroup": "0::/\n",
            f"{ROOT}/pids.current": "1024\n",
            f"{ROOT}/pids.max": "1024\n",
            f"{ROOT}/pids.events": "max 3\n",
        },
    )


CGROUP_PIDS = Check(
    name="cgroup-pids",
    title="no process or thread was refused",
    why="`Resource temporarily unavailable`: a rank cannot start its loader workers or NCCL's threads.",
    look=_look_at_cgroup_pids,
    inject=_inject_cgroup_pids,
)
