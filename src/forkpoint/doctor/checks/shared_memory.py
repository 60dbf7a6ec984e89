"""Is there room in /dev/shm, and who holds what lies there?

Loader workers hand their batches over through it, and NCCL its buffers within a node. Docker gives 64 MB unless told
otherwise. At least 1 GB should be free (NCCL's troubleshooting guide). Leftovers are named with their owner and never
to be deleted unseen: a file without a mapping that can be seen here may be another container's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.overlay import with_disk
from forkpoint.doctor.system import Disk, NoAnswer, System

FOLDER = "/dev/shm"  # noqa: S108 - looked at, never written
DOCKER_DEFAULT = 64 << 20
FREE_AT_LEAST = 1 << 30
_OURS = ("nccl-", "torch_", "sem.loky-", "psm_")
"""How NCCL's and Python's files are called."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Leftover:
    name: str
    size: int
    uid: int


def look(system: System) -> CheckResult:
    disk = system.disk(FOLDER)
    if isinstance(disk, NoAnswer):
        return skipped(disk.why)
    leftovers = _leftovers(system)
    details = ((FOLDER, _size(disk.total)),)
    if disk.total <= DOCKER_DEFAULT:
        return bad(
            f"{FOLDER} is {_size(disk.total)}, which is what Docker gives unless told otherwise",
            "`docker run --shm-size=16g` or `--ipc=host`; in Kubernetes an emptyDir with `medium: Memory` on /dev/shm",
            *details,
        )
    if disk.free < FREE_AT_LEAST:
        return bad(f"{_size(disk.free)} of {_size(disk.total)} are free{_told(leftovers)}", _fix(leftovers), *details)
    return ok(f"{_size(disk.free)} of {_size(disk.total)} are free{_told(leftovers)}", *details)


def _leftovers(system: System) -> tuple[Leftover, ...]:
    """Files of NCCL and Python that no process which can be seen has mapped; none where not all can be seen."""
    files = [name for name in system.names(FOLDER) if name.startswith(_OURS)]
    if not files:
        return ()
    mapped: set[str] = set()
    for process in system.processes():
        maps = system.read(f"/proc/{process.pid}/maps")
        if maps is None and system.names(f"/proc/{process.pid}"):
            return ()
        mapped.update(name for name in files if f"{FOLDER}/{name}" in (maps or ""))
    return tuple(_facts(system, [name for name in files if name not in mapped]))


def _facts(system: System, names: Sequence[str]) -> Iterator[Leftover]:
    for name in names:
        facts = system.stat(f"{FOLDER}/{name}")
        if facts and not facts.is_folder:
            yield Leftover(name, facts.size, facts.uid)


def _told(leftovers: Sequence[Leftover]) -> str:
    if not leftovers:
        return ""
    largest = sorted(leftovers, key=lambda one: -one.size)[:_SHOWN]
    names = ", ".join(f"{one.name} ({_size(one.size)}, user {one.uid})" for one in largest)
    return f"; {len(leftovers)} files that no process seen here has open: {names}"


def _fix(leftovers: Sequence[Leftover]) -> str:
    if not leftovers:
        return "find who fills it: `du -ah /dev/shm | sort -h | tail` and `fuser -v /dev/shm/*`; or give the job more of it"
    return (
        "ask `fuser -v /dev/shm/*` as root on the host first: removing nccl-* files of a job that still runs, anybody's, "
        "breaks it. With no job on the node, their owner removes them"
    )


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= 1 << 30 else f"{number / (1 << 20):.0f} MiB"


def inject(system: System) -> System:
    small = Disk(FOLDER, "tmpfs", DOCKER_DEFAULT, DOCKER_DEFAULT, 0, 0)
    disk = system.disk(FOLDER)
    return with_disk(
        system, FOLDER, small if isinstance(disk, NoAnswer) else replace(disk, total=DOCKER_DEFAULT, free=0)
    )


CHECK = Check(
    name="shared-memory",
    title="room in /dev/shm",
    why="Full, loader workers die of a bus error and NCCL fails to start: `No space left on device (28)`.",
    look=look,
    inject=inject,
)
