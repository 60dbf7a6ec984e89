"""Has the job as many CPUs as it has ranks and loader workers?

Torch warns when one loader has more workers than the process may use CPUs (torch/utils/data/dataloader.py,
`_check_worker_number_rationality`), but it knows neither of the other ranks nor of a control group's quota. Here all of
them count that share this control group, against the CPUs that affinity and quota leave them together. While ranks run,
being held back by the quota is bad too.
"""

from collections.abc import Iterator, Sequence
from math import ceil

from forkpoint.doctor.cgroup import cgroup_folders, keyed
from forkpoint.doctor.check import Check, CheckResult, Status, bad, ok
from forkpoint.doctor.counters import INTERVAL_S, read_number
from forkpoint.doctor.overlay import with_files, with_processes
from forkpoint.doctor.system import Process, System

_LOADER = "pt_data_worker"
"""What torch calls the process of a loader worker."""
_NAME = "name a process of a running job: forkpoint doctor --job PID"
_FIX = "give the job more CPUs (`--cpus-per-task`, the container's CPU limit), or lower num_workers"


def look(system: System) -> CheckResult:
    ranks = _ranks(system)
    cpus = _cpus(system, [f"/proc/{rank.pid}" for rank in ranks] or [system.proc])
    if cpus is None:
        return CheckResult(Status.SKIPPED, "neither affinity nor quota of this process can be read")
    details = (("CPUs", f"{cpus:g}"),)
    if not ranks:
        return _without_job(system, cpus, details)
    busy = len(ranks) - len(_inherited(ranks)) + len(_workers(system, ranks))
    if busy > ceil(cpus):
        return bad(f"{busy} ranks and loader workers share {cpus:g} CPUs", _FIX, *details)
    throttled = _throttled(system)
    if throttled:
        return bad(f"the CPU quota held the job back {throttled} times in {INTERVAL_S:g} s", _FIX, *details)
    return ok(f"{busy} ranks and loader workers, {cpus:g} CPUs", *details)


def _ranks(system: System) -> list[Process]:
    """Those in the same control group: other jobs of the node have CPUs of their own."""
    group = system.read(f"{system.proc}/cgroup")
    ranks = [process for process in system.processes() if "LOCAL_RANK" in (process.environ or {})]
    return [rank for rank in ranks if group is not None and system.read(f"/proc/{rank.pid}/cgroup") == group]


def _without_job(system: System, cpus: float, details: tuple[tuple[str, str], ...]) -> CheckResult:
    """Before it starts, the launcher's number of ranks is all there is to compare with."""
    ranks = system.environ.get("LOCAL_WORLD_SIZE", "")
    if not ranks.isdecimal():
        return CheckResult(
            Status.SKIPPED, f"{cpus:g} CPUs; no rank runs in this control group to compare with", _NAME, details
        )
    if int(ranks) > ceil(cpus):
        return bad(f"{ranks} ranks will share {cpus:g} CPUs", _FIX, *details)
    return ok(f"{cpus:g} CPUs for {ranks} ranks and their loader workers", *details)


def _inherited(ranks: Sequence[Process]) -> list[Process]:
    """Children of ranks have the ranks' environment."""
    pids = {process.pid for process in ranks}
    return [process for process in ranks if process.ppid in pids]


def _workers(system: System, ranks: Sequence[Process]) -> list[Process]:
    """Other children, such as those that compile, mostly sleep."""
    names = ((process, (system.read(f"/proc/{process.pid}/comm") or "").strip()) for process in _inherited(ranks))
    return [process for process, name in names if name == _LOADER]


def _cpus(system: System, folders: Sequence[str]) -> float | None:
    allowed = {cpu for folder in folders for cpu in _allowed(system, folder)}
    known = [number for number in (float(len(allowed)) or None, _quota(system)) if number is not None]
    return min(known, default=None)


def _allowed(system: System, folder: str) -> Iterator[int]:
    """`Cpus_allowed_list: 0-3,8`. Launchers may give each rank CPUs of its own."""
    lines = (system.read(f"{folder}/status") or "").splitlines()
    listed = next((line.partition(":")[2].strip() for line in lines if line.startswith("Cpus_allowed_list:")), "")
    for span in listed.split(",") if listed else ():
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _quota(system: System) -> float | None:
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


def _throttled(system: System) -> int:
    files = [f"{folder}/cpu.stat" for folder in cgroup_folders(system, "cpu")[:1]]
    before = [keyed(system.read(file)).get("nr_throttled", 0) for file in files]
    if _quota(system) is None:
        return 0
    system.pause(INTERVAL_S)
    after = [keyed(system.read(file)).get("nr_throttled", 0) for file in files]
    return sum(after) - sum(before)


def inject(system: System) -> System:
    """Sixteen ranks on two CPUs."""
    pids = range(2, 18)
    folders = [system.proc, *(f"/proc/{pid}" for pid in pids)]
    few = {f"{folder}/cgroup": "0::/\n" for folder in folders}
    few |= {f"{folder}/status": "Cpus_allowed_list:\t0-1\n" for folder in folders}
    ranks = [Process(pid, 1, 0, "R", system.now(), ("python", "train.py"), {"LOCAL_RANK": str(pid)}) for pid in pids]
    return with_processes(with_files(system, few), ranks)


CHECK = Check(
    name="cgroup-cpu",
    title="CPUs for every rank and loader worker",
    why="A starved loader or main thread makes its rank late for the collective, and all others wait.",
    look=look,
    inject=inject,
)
