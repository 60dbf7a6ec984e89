"""Limits of the process (ulimit): locked memory, open files, stack.

Locked memory must be unlimited where RDMA is used: registering a buffer locks it (NCCL's troubleshooting guide). Of open
files, 1024 is what a login shell gets and what loader workers use up; the store on rank 0 and gloo keep one connection to
each rank, so that fewer than twice the world cannot do. An unlimited stack made NCCL before 2.28 start its threads with
2 MB, which overflow at start-up. The number of processes is compared between nodes only.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.overlay import with_files
from forkpoint.doctor.system import System

LOGIN_DEFAULT = 1024
_STACK_MENDED = (2, 28)
_LINE = re.compile(r"(Max [a-z ]+?) {2,}(\w+) +(\w+)")
_KEPT = {
    "Max locked memory": "memlock",
    "Max open files": "nofile",
    "Max stack size": "stack",
    "Max processes": "nproc",
}
_UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True)
class Limit:
    soft: int | None
    """None is unlimited."""
    printed: str


def look(system: System) -> CheckResult:
    limits = _limits(system.read(f"{system.proc}/limits") or "")
    if not limits:
        return skipped(f"{system.proc}/limits cannot be read")
    trouble = list(_trouble(system, limits))
    details = tuple((name, limit.printed) for name, limit in limits.items())
    if trouble:
        return bad("; ".join(says for says, _ in trouble), "; ".join(fix for _, fix in trouble), *details)
    rdma = "" if _has_rdma(system) else " (memlock is not judged: no RDMA adapter is here)"
    return ok(f"{', '.join(f'{name} {value}' for name, value in details)}{rdma}", *details)


def _limits(text: str) -> dict[str, Limit]:
    found = {match[1]: match[2] for line in text.splitlines() if (match := _LINE.match(line))}
    return {
        name: Limit(None if found[title] == _UNLIMITED else int(found[title]), found[title])
        for title, name in _KEPT.items()
        if title in found
    }


def _trouble(system: System, limits: Mapping[str, Limit]) -> Iterator[tuple[str, str]]:
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
    stack, nccl = limits.get("stack"), _nccl(system)
    if stack and stack.soft is None and nccl and nccl < _STACK_MENDED:
        yield f"the stack is unlimited, with which NCCL {nccl[0]}.{nccl[1]} may crash", "`ulimit -s 8192`, or NCCL 2.28"


def _has_rdma(system: System) -> bool:
    return bool(system.names("/sys/class/infiniband"))


def _nccl(system: System) -> tuple[int, int] | None:
    found = system.package("nvidia-nccl-cu13") or system.package("nvidia-nccl-cu12")
    parts = found.version.split(".") if found else []
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and all(part.isdecimal() for part in parts[:2]) else None


def inject(system: System) -> System:
    line = "Max open files            1024                 1048576              files     \n"
    return with_files(system, {f"{system.proc}/limits": line})


CHECK = Check(
    name="limits",
    title="limits on memory, files and stack",
    why="`ibv_reg_mr` fails, `Too many open files`, or a crash at start-up on the one node that was set up differently.",
    look=look,
    inject=inject,
)
