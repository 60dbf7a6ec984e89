"""Was anything in the job's control group killed for memory, and what is its limit?

How full it is is told and not judged: it counts cached files too, which the kernel gives up when memory is wanted.
"""

from forkpoint.doctor.cgroup import ROOT, cgroup_folders, keyed
from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.counters import read_number
from forkpoint.doctor.overlay import with_files
from forkpoint.doctor.system import System

_NO_LIMIT = 1 << 60
"""Version 1 writes the largest number it can in place of none."""


def look(system: System) -> CheckResult:
    folders = cgroup_folders(system, "memory")
    own = next((folder for folder in folders if _used(system, folder) is not None), None)
    if own is None:
        return skipped("no control group of this process tells of memory")
    limit = _limit(system, folders)
    details = (("memory limit", _size(limit)), (f"count kills in {own}", str(_kills(system, own))))
    if _kills(system, own):
        return bad(
            f"the kernel killed {_kills(system, own)} processes of {own} for memory; its limit is {_size(limit)}",
            "raise the job's memory request, or use fewer loader workers, less prefetch and pinned memory; "
            "`dmesg | grep -i oom-kill` names the processes",
            *details,
        )
    return ok(f"nothing was killed for memory; {_size(_used(system, own))} used, limit {_size(limit)}", *details)


def _used(system: System, folder: str) -> int | None:
    newer = read_number(system, f"{folder}/memory.current")
    return newer if newer is not None else read_number(system, f"{folder}/memory.usage_in_bytes")


def _limit(system: System, folders: tuple[str, ...]) -> int | None:
    """The smallest on the way up: the parent's counts for all its children together."""
    files = [f"{folder}/{name}" for folder in folders for name in ("memory.max", "memory.limit_in_bytes")]
    limits = [limit for file in files if (limit := read_number(system, file)) is not None and limit < _NO_LIMIT]
    return min(limits, default=None)


def _kills(system: System, folder: str) -> int:
    events = system.read(f"{folder}/memory.events") or system.read(f"{folder}/memory.oom_control")
    return keyed(events).get("oom_kill", 0)


def _size(number: int | None) -> str:
    return "none" if number is None else f"{number / (1 << 30):.1f} GiB"


def inject(system: System) -> System:
    return with_files(
        system,
        {
            f"{system.proc}/cgroup": "0::/\n",
            f"{ROOT}/memory.current": "8589934592\n",
            f"{ROOT}/memory.max": "8589934592\n",
            f"{ROOT}/memory.events": "low 0\nhigh 0\nmax 70\noom 1\noom_kill 1\noom_group_kill 0\n",
        },
    )


CHECK = Check(
    name="cgroup-memory",
    title="nothing in the job's control group was killed for memory",
    why="A rank or loader worker that is killed writes no dump; its peers hang, and the job looks like a network fault.",
    look=look,
    inject=inject,
)
