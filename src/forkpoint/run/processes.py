"""Every process that a job has started, and the end of all of them.

A process that outlives its parent is given to us (`PR_SET_CHILD_SUBREAPER`), whatever session it made for itself, so the
job is what is below us. Where the kernel refuses that, FORKPOINT_RUN in a process's environment still tells.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

RUN_VARIABLE = "FORKPOINT_RUN"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.05
_KILL_S = 10.0
"""A process in the kernel's hands (state D) ends when that lets go of it: not waited for without end."""


def adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> Callable[[], None]:
    """To be called in a child before it becomes its program: if we are killed, a launcher still ends its ranks."""
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return ask


def find_processes(run: str) -> frozenset[int]:
    """Numbers of those that still live."""
    mark = f"{RUN_VARIABLE}={run}".encode()
    parents = {pid: parent for pid in _all_pids() if (parent := _living_parent(pid)) is not None}
    ours = {pid for pid in parents if _is_below_us(pid, parents) or mark in _environ(pid)}
    return frozenset(ours - {os.getpid()})


def end_processes(run: str, grace_s: float) -> frozenset[int]:
    """Ask, wait, then kill, until none is left. Returns those that even a kill did not end."""
    if _send(run, signal.SIGTERM) and grace_s > 0:
        _wait_until_gone(run, grace_s)
    until = time.monotonic() + _KILL_S
    while left := _send(run, signal.SIGKILL):
        if time.monotonic() > until:
            return left
        time.sleep(_POLL_S)
    return frozenset()


def _wait_until_gone(run: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while find_processes(run) and time.monotonic() < until:
        time.sleep(_POLL_S)


def _send(run: str, number: int) -> frozenset[int]:
    found = find_processes(run)
    for pid in found:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # ended by itself, or another user's by now: reported as left
            continue
    return found


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 thousands of names, no paths needed


def _living_parent(pid: int) -> int | None:
    """None: it is gone, or dead and only not yet taken note of."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state, parent = text.rpartition(")")[2].split()[:2]  # its name may hold anything, brackets too
    return None if state in "ZX" else int(parent)


def _is_below_us(pid: int, parents: dict[int, int]) -> bool:
    us = os.getpid()
    while pid in parents and pid != us:
        pid = parents[pid]
    return pid == us


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or gone
        return []
