"""Is the next rank's process on this host still there? The only thing a guard can say of a rank that says nothing."""

import os
from pathlib import Path

from forkpoint.guard.beat import RankState


def identity() -> dict[str, int | str]:
    """What a rank tells of its process, once: where it is, its number, and when it began (numbers are used again)."""
    return {"boot": boot_id(), "pid": os.getpid(), "began": _began(os.getpid()) or 0}


def boot_id() -> str:
    """Of this host and this namespace of process numbers: host names are not unique, and containers share kernels."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}-{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116 a link that is not followed by Path.stat
    except OSError:
        return ""


def look_at(pid: int, began: int) -> RankState:
    """Of a process of this host."""
    now = _began(pid)
    if now is None or now != began:
        return RankState.GONE
    return (
        RankState.STOPPED
        if _state(pid) in ("T", "t")
        else RankState.GONE
        if _state(pid) in ("Z", "X", "")
        else RankState.RUNNING
    )


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the name before it may hold anything


def _state(pid: int) -> str:
    return next(iter(_stat(pid)), "")


def _began(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else None
