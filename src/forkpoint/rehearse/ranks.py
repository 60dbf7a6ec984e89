"""Starts the processes of one run, reports how they end, and leaves none running."""

import json
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from forkpoint.errors import UsageError
from forkpoint.live.processes import list_pids, read_state

_READY_S: Final = 300.0
"""Time for importing torch on a slow machine."""
_GONE_S: Final = 10.0
_POLL_S: Final = 0.02
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class RankStart:
    rank: int
    """-1: a launcher, which starts the ranks itself."""
    argv: tuple[str, ...]
    """Without the interpreter, if it is a rank."""
    environ: Mapping[str, str]
    cwd: Path
    log: Path
    anew: bool = False
    """Not a fork, because of something that only a new process takes from its environment."""


class StartsRanks(Protocol):
    def start(self, ranks: Iterable[RankStart]) -> "StartedRanks": ...
    def poll(self, pids: Mapping[int, int]) -> dict[int, int]:
        """Exit codes of those that have ended, by rank; negative is a signal."""
        ...


class StartedRanks:
    def __init__(self, by: StartsRanks, pids: Mapping[int, int], store: int | None = None) -> None:
        """`store`: the process that serves the ranks' store, if it is not a rank."""
        self._by = by
        self._store = store
        self.pids = dict(pids)
        self.codes: dict[int, int] = {}
        self.order: list[int] = []
        """Ranks in the order in which they ended."""

    def poll(self) -> dict[int, int]:
        for rank, code in self._by.poll(self.pids).items():
            if rank not in self.codes:
                self.codes[rank] = code
                self.order.append(rank)
        return self.codes

    @property
    def all_ended(self) -> bool:
        return len(self.poll()) == len(self.pids)

    def cpu_s(self) -> float:
        """CPU time of all living ranks and their children."""
        return sum(_cpu_s(pid) for pid in _with_children(set(self.pids.values())))

    def wants_a_core(self) -> bool:
        """Some thread of the ranks is running, runnable, or waiting for a disk."""
        return any(map(_wants_a_core, _with_children(set(self.pids.values()))))

    def starved_s(self) -> float:
        """Time for which threads of the ranks were ready to run and had no core, added up; not a number if the kernel does not tell."""
        pids = _with_children(set(self.pids.values()))
        times = [told for pid in pids for told in _schedules(pid)]
        return sum(waited for _, waited in times) / 1e9 if any(ran for ran, _ in times) else math.nan

    def end(self) -> None:
        """Kills every process of the run and their children."""
        below = _with_children({pid for rank, pid in self.pids.items() if rank not in self.codes})
        for pid in (*self.pids.values(), *([self._store] if self._store else [])):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for pid in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + _GONE_S
        while not self.all_ended and time.monotonic() < until:
            time.sleep(_POLL_S)


def _with_children(pids: set[int]) -> set[int]:
    states = {pid: state for pid in list_pids() if (state := read_state(pid)) is not None}
    found = {pid for pid in pids if pid in states}
    while True:
        more = {pid for pid, state in states.items() if state.parent in found} - found
        if not more:
            return found
        found |= more


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


# ---------------------------------------------------------------------------------------------------------------------
# Each rank is a new process.


class ColdStart:
    def __init__(self, interpreter: str) -> None:
        """`interpreter`: "" if the command starts its ranks itself."""
        self._interpreter = interpreter
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, ranks: Iterable[RankStart]) -> StartedRanks:
        self._processes = {start.rank: self._launch(start) for start in ranks}
        return StartedRanks(self, {rank: process.pid for rank, process in self._processes.items()})

    def poll(self, pids: Mapping[int, int]) -> dict[int, int]:
        found = {rank: self._processes[rank].poll() for rank in pids}
        return {rank: code for rank, code in found.items() if code is not None}

    def _launch(self, start: RankStart) -> "subprocess.Popen[bytes]":
        own = [self._interpreter] if self._interpreter else []
        with start.log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 the user's own command line
                [*own, *start.argv],
                cwd=start.cwd,
                env=dict(start.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


# ---------------------------------------------------------------------------------------------------------------------
# Ranks as forks of one process that has imported torch (`inside/starter.py`).


class WarmStart:
    """Imports torch once for all runs of a rehearsal."""

    def __init__(self, interpreter: str, environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 the interpreter of the user's own command
            [interpreter, "-P", "-m", "forkpoint.rehearse.inside.starter"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            start_new_session=True,
        )
        self._rest = b""
        self._codes: dict[int, int] = {}
        try:
            self._wait_for("ready")
        except BaseException:
            self.end()
            raise

    def start(self, ranks: Iterable[RankStart]) -> StartedRanks:
        told = [
            {
                "rank": s.rank,
                "argv": s.argv,
                "environ": dict(s.environ),
                "cwd": str(s.cwd),
                "log": str(s.log),
                "anew": s.anew,
            }
            for s in ranks
        ]
        assert self._process.stdin is not None  # it was asked for
        self._process.stdin.write(json.dumps({"ranks": told}).encode() + b"\n")
        self._process.stdin.flush()
        self._codes.clear()
        answer = self._wait_for("started")
        return StartedRanks(self, {int(rank): pid for rank, pid in answer["started"].items()}, answer["store"])

    def poll(self, pids: Mapping[int, int]) -> dict[int, int]:
        self._hear(0)
        return {rank: self._codes[pid] for rank, pid in pids.items() if pid in self._codes}

    def end(self) -> None:
        for pid in _with_children({self._process.pid}):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _wait_for(self, what: str) -> dict[str, Any]:
        until = time.monotonic() + _READY_S
        while time.monotonic() < until:
            for message in self._hear(0.2):
                if what in message:
                    return message
            if self._process.poll() is not None:
                assert self._process.stderr is not None  # it was asked for
                last = self._process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
                raise UsageError(
                    f"the ranks cannot be started ({last}); the interpreter of the command must have torch and forkpoint"
                )
        raise UsageError(f"torch could not be imported within {_READY_S:.0f} s")

    def _hear(self, wait_s: float) -> list[dict[str, Any]]:
        stream = self._process.stdout
        assert stream is not None  # it was asked for
        messages: list[dict[str, Any]] = []
        while select.select([stream], [], [], wait_s)[0]:
            piece = os.read(stream.fileno(), 1 << 16)
            if not piece:
                break
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "ended" in message:
                    self._codes[message["ended"]] = message["code"]
                else:
                    messages.append(message)
            wait_s = 0
        return messages


def _schedules(pid: int) -> Iterator[tuple[int, int]]:
    """For each thread the nanoseconds that it ran, and waited for a core."""
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError, ValueError):
            ran, waited, _ = task.read_text().split()
            yield int(ran), int(waited)


def _wants_a_core(pid: int) -> bool:
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            if task.read_text(errors="replace").rpartition(")")[2].split()[0] in "RD":
                return True
    return False
