"""Ranks that run on this machine, found by RANK in their environment, never by name. Nothing is sent to them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = "/proc"
_MAX_ENVIRONMENT = 1 << 20


@dataclass(frozen=True, slots=True)
class LiveRank:
    pid: int
    rank: int
    environ: dict[str, str]
    folder: str
    """Its working directory, from which its relative paths count."""
    outputs: tuple[str, ...]
    """Files that its standard output and error go to."""


def find_live_ranks(proc: str = _PROC) -> list[LiveRank]:
    """Those whose environment this user may read."""
    found = (_look(process) for process in _processes(proc))
    return sorted((rank for rank in found if rank), key=lambda rank: (rank.rank, rank.pid))


def _processes(proc: str) -> Iterator[Path]:
    try:
        yield from (entry for entry in Path(proc).iterdir() if entry.name.isdecimal())
    except OSError:
        return


def _look(process: Path) -> LiveRank | None:
    try:
        with (process / "environ").open("rb") as stream:
            raw = stream.read(_MAX_ENVIRONMENT)
        folder = str((process / "cwd").readlink())
    except OSError:
        return None
    pairs = (pair.partition("=") for pair in raw.decode("utf-8", "replace").split("\0"))
    environ = {name: value for name, equals, value in pairs if equals}
    rank = environ.get("RANK", "")
    if not (rank.isascii() and rank.isdecimal()) or "WORLD_SIZE" not in environ:
        return None
    return LiveRank(int(process.name), int(rank), environ, folder, tuple(_outputs(process)))


def _outputs(process: Path) -> Iterator[str]:
    for number in ("1", "2"):
        try:
            target = (process / "fd" / number).readlink()
        except OSError:
            continue
        if target.is_absolute() and target.is_file():
            yield str(target)
