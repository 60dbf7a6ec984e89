"""Finds every process that a job has started, and ends them all.

A process that outlives its parent becomes our child (`PR_SET_CHILD_SUBREAPER`), whatever session it opened, so the job is
all our descendants. Where the kernel refuses that, FORKPOINT_RUN in a process's environment marks it.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable

from forkpoint.live.processes import list_pids, read_environ, read_state

RUN_VARIABLE = "FORKPOINT_RUN"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.05
_KILL_S = 10.0
"""A process in an uninterruptible system call (state D) ends only when that returns: the wait is bounded."""


def adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> Callable[[], None]:
    """To be called in a child before it executes its program: if we are killed, a launcher still ends its ranks."""
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return ask


def find_processes(run: str) -> frozenset[int]:
    """Pids of those that are alive."""
    states = {pid: state for pid in list_pids() if (state := read_state(pid)) is not None}
    parents = {pid: state.parent for pid, state in states.items() if not state.is_dead}
    return frozenset({pid for pid in parents if _is_below_us(pid, parents) or _is_marked(pid, run)} - {os.getpid()})


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


def _is_below_us(pid: int, parents: dict[int, int]) -> bool:
    us = os.getpid()
    while pid in parents and pid != us:
        pid = parents[pid]
    return pid == us


def _is_marked(pid: int, run: str) -> bool:
    return (read_environ(pid) or {}).get(RUN_VARIABLE) == run
