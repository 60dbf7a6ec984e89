"""What this machine lets the job use: shared memory and ulimits."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from forkpoint.doctor.report import CheckResult, DoctorCheck, bad, ok, skipped
from forkpoint.doctor.system import Disk, System, Unanswered, with_disk, with_files

SHM = "/dev/shm"  # noqa: S108 - looked at, never written
DOCKER_DEFAULT = 64 << 20
FREE_AT_LEAST = 1 << 30
_SHM_PREFIXES = ("nccl-", "torch_", "sem.loky-", "psm_")
"""Names of NCCL's and Python's files."""
_SHOWN_LEFTOVERS = 5


@dataclass(frozen=True, slots=True)
class Leftover:
    name: str
    size: int
    uid: int


def _look_at_shared_memory(system: System) -> CheckResult:
    """Is there room in /dev/shm, and who owns the files in it?

    Loader workers pass batches through it, and NCCL its buffers within a node. Docker's default is 64 MB. At least 1 GB
    should be free (NCCL's troubleshooting guide). Leftovers are named with their owner and must not be deleted blindly: a
    file that no visible process has mapped may belong to another container.
    """
    disk = system.disk(SHM)
    if isinstance(disk, Unanswered):
        return skipped(disk.why)
    leftovers = _leftovers(system)
    details = ((SHM, _mib_or_gib(disk.total)),)
    if disk.total <= DOCKER_DEFAULT:
        return bad(
            f"{SHM} is {_mib_or_gib(disk.total)}, which is Docker's default",
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
    """Files of NCCL and Python that no process has mapped; none if not all processes can be seen."""
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


SHARED_MEMORY = DoctorCheck(
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

    Locked memory must be unlimited with RDMA: registering a buffer locks it (NCCL's troubleshooting guide). 1024 open files
    is the default of a login shell, and loader workers use it up; the store on rank 0 and gloo keep one connection to each
    rank, so at least twice the world size is needed. With an unlimited stack NCCL before 2.28 starts its threads with 2 MB,
    which overflow at start-up. The number of processes is only compared between nodes.
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


LIMITS = DoctorCheck(
    name="limits",
    title="limits on memory, files and stack",
    why="`ibv_reg_mr` fails, `Too many open files`, or a crash at start-up on the one node that was set up differently.",
    look=_look_at_limits,
    inject=_inject_limits,
)
