"""One job from its start to its end: signals are passed on, output is kept, and no process is left.

A process that outlives its parent becomes our child (`PR_SET_CHILD_SUBREAPER`), whatever session it opened, so the job
consists of all our descendants. If the kernel refuses that, processes are found by FORKPOINT_RUN in their environment.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread, Timer
from types import FrameType
from typing import IO

from forkpoint.errors import UsageError
from forkpoint.live.processes import list_pids, read_environ, read_state

# ---------------------------------------------------------------------------------------------------------------------
# The output of a process: passed on unchanged, and kept in a file.

_PIECE = 1 << 16


class Copying:
    """Starts at once. Neither a closed terminal nor a full disk stops the job."""

    def __init__(self, source: IO[bytes], target: int, file: Path) -> None:
        self._source, self._target = source, target
        self._file = file.open("wb", buffering=0)
        self._thread = Thread(target=self._copy, daemon=True, name=f"copying-{file.name}")
        self._thread.start()

    def finish(self, limit_s: float) -> None:
        """Call it when all writers have ended: the end of the stream is near."""
        self._thread.join(limit_s)

    def _copy(self) -> None:
        not_passed: OSError | None = None
        not_kept: OSError | None = None
        with self._source, self._file:
            while piece := os.read(self._source.fileno(), _PIECE):
                not_passed = not_passed or _try_write(self._target, piece)
                not_kept = not_kept or _try_write(self._file.fileno(), piece)
        if not_kept:
            why = f"could not be written completely ({not_kept.strerror}); the evidence is truncated"
            sys.stderr.write(f"forkpoint: {self._file.name}: {why}\n")


def _try_write(target: int, piece: bytes) -> OSError | None:
    rest = memoryview(piece)
    try:
        while rest:
            rest = rest[os.write(target, rest) :]
    except OSError as error:
        return error
    return None


# ---------------------------------------------------------------------------------------------------------------------
# One child from its start to its end: signals passed on, output kept, nothing polled.

_LOOK_S = 0.02
"""How soon the end of a job is seen."""
_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PASSED_ON = (*_STOP, signal.SIGUSR1, signal.SIGUSR2)
_DRAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class JobStart:
    argv: Sequence[str]
    environ: Mapping[str, str]
    run: str
    """A unique id that marks every process of the job."""
    logs: Path
    copies_stdout: bool
    grace_s: float
    """Between being asked to end and being killed."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    code: int
    """As in a shell: 128 + signal for a process that was killed."""
    stopped_by: int | None
    """The signal that we received or sent to stop it."""
    seconds: float


class JobProcess:
    """`stop` may be called from any thread."""

    def __init__(self, start: JobStart) -> None:
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped_by: int | None = None
        self._early: list[int] = []
        """Signals that arrived before the process was started."""
        self._copies: list[Copying] = []
        self._ended = Event()

    def run(self) -> JobEnd:
        """From the main thread. Processes that outlive the child are left to `end_processes`."""
        adopt_orphans()
        began = time.monotonic()
        with handling(_PASSED_ON, self._hear):
            process = self._process = self._launch()
            for number in self._early:
                self._hear(number, None)
            self._copies = self._copy(process)
            _wait_until_ended(process.pid)
            self._ended.set()  # from here on its pid may be reused
            code = process.wait()
        return JobEnd(128 - code if code < 0 else code, self._stopped_by, time.monotonic() - began)

    def finish_copies(self) -> None:
        """Call it once no process is left that could still write."""
        for copy in self._copies:
            copy.finish(_DRAIN_S)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Sends the signal, and kills what is left after the grace period. A second call kills at once."""
        if self._stopped_by is None:
            self._stopped_by = number
            self._pass_on(number)
            timer = Timer(self._start.grace_s, self._kill)
            timer.daemon = True
            timer.start()
        else:
            self._kill()

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self._process is None:
            self._early.append(number)
        elif number in _STOP:
            self.stop(number)
        else:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if self._process is not None and not self._ended.is_set():
            # Popen.send_signal would reap the exit code before `_wait_until_ended` sees it.
            os.kill(self._process.pid, number)

    def _kill(self) -> None:
        if not self._ended.is_set():
            end_processes(self._start.run, 0)

    def _launch(self) -> "subprocess.Popen[bytes]":
        start = self._start
        try:
            return subprocess.Popen(  # noqa: S603 the user's own command line
                list(start.argv),
                env={**start.environ, RUN_VARIABLE: start.run},
                stdout=subprocess.PIPE if start.copies_stdout else None,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=end_with_parent(),  # noqa: PLW1509 one system call; no thread of ours holds a lock here
            )
        except OSError as error:
            name = start.argv[0]
            hint = (
                f"did you mean forkpoint run -- torchrun {name}?" if name.endswith(".py") else "is it installed here?"
            )
            raise UsageError(f"{name}: cannot be started ({error.strerror}); {hint}") from error

    def _copy(self, process: "subprocess.Popen[bytes]") -> list[Copying]:
        streams = [(process.stdout, 1, "stdout.log"), (process.stderr, 2, "stderr.log")]
        return [Copying(stream, target, self._start.logs / name) for stream, target, name in streams if stream]


def _wait_until_ended(pid: int) -> None:
    """Does not reap it. Adopted orphans are reaped here, or they would stay zombies. It polls instead of blocking: a signal
    that arrives right before a blocking call is handled only when the call returns.
    """
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            time.sleep(_LOOK_S)
        elif ended.si_pid == pid:
            return
        else:
            os.waitpid(ended.si_pid, 0)


@contextmanager
def handling(numbers: Sequence[int], handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """A signal that is ignored (nohup) stays ignored."""
    before = {number: signal.getsignal(number) for number in numbers}
    for number, old in before.items():
        if old is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


# ---------------------------------------------------------------------------------------------------------------------
# Finds every process that a job has started, and ends them all.

RUN_VARIABLE = "FORKPOINT_RUN"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.05
_KILL_S = 10.0
"""A process in an uninterruptible system call (state D) ends only when that returns: the wait is bounded."""


def adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> Callable[[], None]:
    """For `preexec_fn`: if we are killed, the kernel sends the launcher SIGTERM, and it ends its ranks."""
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
