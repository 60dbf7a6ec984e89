"""The control groups that a process is in, of either version: its own folder first, then those above it."""

from collections.abc import Iterator
from typing import NamedTuple

from forkpoint.doctor.system import System

ROOT = "/sys/fs/cgroup"


class CgroupLine(NamedTuple):
    controllers: tuple[str, ...]
    """Empty for version 2."""
    path: str


def cgroup_folders(system: System, controller: str) -> tuple[str, ...]:
    """Where the limits of this controller stand; a container sees its own group as the top."""
    lines = [_parse(line) for line in (system.read(f"{system.proc}/cgroup") or "").splitlines()]
    older = next((line.path for line in lines if controller in line.controllers), None)
    newer = next((line.path for line in lines if not line.controllers), None)
    base, path = (f"{ROOT}/{controller}", older) if older is not None else (ROOT, newer)
    return tuple(dict.fromkeys(f"{base}{above}" for above in _upwards(path))) if path is not None else ()


def _parse(line: str) -> CgroupLine:
    """`4:memory:/slurm/job_7` or `0::/user.slice`; a path may hold colons."""
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
    """Files of one name and number a line: memory.events, cpu.stat."""
    fields = (line.split() for line in (text or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in fields if len(pair) == 2 and pair[1].isdecimal()}
