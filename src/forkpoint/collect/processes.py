"""Ranks that run on this machine, found by RANK in their environment, never by name. Nothing is sent to them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from forkpoint.live.processes import PROC, list_pids, read_environ


@dataclass(frozen=True, slots=True)
class LiveRank:
    pid: int
    rank: int
    environ: dict[str, str]
    folder: str
    """Its working directory, from which its relative paths count."""
    outputs: tuple[str, ...]
    """Files that its standard output and error go to."""


def find_live_ranks(proc: str = PROC) -> list[LiveRank]:
    """Those whose environment this user may read."""
    found = (_look(pid, proc) for pid in list_pids(proc))
    return sorted((rank for rank in found if rank), key=lambda rank: (rank.rank, rank.pid))


def _look(pid: int, proc: str) -> LiveRank | None:
    process, environ = Path(proc) / str(pid), read_environ(pid, proc) or {}
    rank = environ.get("RANK", "")
    if not (rank.isascii() and rank.isdecimal()) or "WORLD_SIZE" not in environ:
        return None
    try:
        folder = str((process / "cwd").readlink())
    except OSError:
        return None
    return LiveRank(pid, int(rank), environ, folder, tuple(_outputs(process)))


def _outputs(process: Path) -> Iterator[str]:
    for number in ("1", "2"):
        try:
            target = (process / "fd" / number).readlink()
        except OSError:
            continue
        if target.is_absolute() and target.is_file():
            yield str(target)
