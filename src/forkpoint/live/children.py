"""What is done in child processes: to diagnose, to keep an incident, to notify services.

Every tool that diagnoses besides its own work has it done here: the guard (a training process must not load the engine),
`forkpoint run`, `forkpoint serve`, the attribution service and the controller. A child gets a task as JSON on its standard input
and answers with JSON on its standard output; it can be killed when it takes too long, and a crash in it harms nobody. This module
imports neither the engine nor a client of any service; the programs are `worker`, `history/keeping` and `sinks/worker`.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

import msgspec

from forkpoint.sinks.notice import Notice, NoticeOrigin
from forkpoint.sinks.sink import SinkOutcome

LIMIT_S: Final = 900.0
"""10,000 ranks with 2,000 calls each take about six minutes."""
ANY_NODE: Final = "all-nodes"
"""Replaces the node's name if ranks of several nodes write to one folder."""

DO_NOT_RETRY: Final = 93
"""The exit code that NVIDIA's ft_launcher uses for it."""
RETRY: Final = 75
"""EX_TEMPFAIL."""
RETRY_ELSEWHERE: Final = 76

_POLL_S: Final = 0.02
_OWN: Final = (sys.executable, "-P", "-m")
"""-P: no module is imported from the current folder, which may contain evidence."""
_DIAGNOSER: Final = (*_OWN, "forkpoint.live.worker")
_KEEPER: Final = (*_OWN, "forkpoint.history.keeping")
_NOTIFIER: Final = (*_OWN, "forkpoint.sinks.worker")
_UNSET: Final = ("FORKPOINT", "RANK", "WORLD_SIZE", "LOCAL_RANK")
"""A child of a training process is not a rank."""


@dataclass(frozen=True, slots=True)
class PageTask:
    """An HTML page that reloads itself."""

    events: str
    """The address that tells the page about a newer version."""
    home: str | None
    """The list of incidents, if there is one."""
    embed_source: bool = False


@dataclass(frozen=True, slots=True)
class DecisionTask:
    """What a scheduler should do with the job."""

    attempt: str
    """The folder that contains one folder per node."""
    child_code: int
    """The exit code of the job, used if the evidence does not decide."""


@dataclass(frozen=True, slots=True)
class StoreTask:
    """Whether the fork was seen before."""

    place: str
    """A file or a URL."""
    run: str | None = None
    attempt: int = 0
    write: bool = True
    """False: the caller decides later whether it is an incident (`keep_incident`)."""


@dataclass(frozen=True, slots=True)
class Task:
    """A verdict is always wanted; `None` means that the rest is not."""

    paths: tuple[str, ...]
    source: tuple[str, ...] = ()
    report_width: int | None = None
    """Characters per line of the text report."""
    page: PageTask | None = None
    decision: DecisionTask | None = None
    store: StoreTask | None = None
    origin: NoticeOrigin | None = None
    """Also a notice for services."""
    with_value: bool = False
    """Also the verdict as a value, for `read_verdict` in `worker`."""


@dataclass(frozen=True, slots=True)
class Decision:
    code: int
    """The exit code of `forkpoint run`."""
    why: str
    nodes: tuple[str, ...] = ()
    """Nodes to leave out of the next attempt."""


@dataclass(frozen=True, slots=True)
class Diagnosed:
    cause: str
    action: str
    suspects: tuple[int, ...]
    confidence: float
    headline: str
    summary: str
    document: str
    """The verdict as `diagnose --json` writes it."""
    line: str = ""
    """The verdict in one line."""
    group: str = ""
    """The group in which ranks parted."""
    seq: int | None = None
    """Where ranks wait, or parted."""
    sites: tuple[str, ...] = ()
    """The first few places in the source, `train.py:31 (why)`."""
    when: str | None = None
    """The last event with a UTC time."""
    report: str = ""
    page: str = ""
    step: int | None = None
    """The last training step that a log mentions; only with a decision."""
    decision: Decision | None = None
    seen: tuple[str, ...] = ()
    """Lines about earlier incidents at the same fork; only with a store."""
    store_problem: str | None = None
    """Why the store could not be used."""
    incident: dict[str, Any] | None = None
    """What `keep_incident` takes; only with a store that was not written to."""
    notice: Notice | None = None
    value: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class NotDiagnosed:
    why: str


def keep_incident(store: str, incident: dict[str, Any]) -> None:
    """Writes it from a process that outlives this one, which may end because of the incident. Raises OSError."""
    _let_run(_start(_KEEPER, {"store": store, "incident": incident}))


_outliving: Final[list[subprocess.Popen[bytes]]] = []
"""Children that may still run; those that have ended are reaped when the next one starts."""


def _let_run(child: "subprocess.Popen[bytes]") -> None:
    _outliving[:] = [*(one for one in _outliving if one.poll() is None), child]


def _start(
    command: Sequence[str],
    task: object,
    stdout: Any = subprocess.DEVNULL,
    stderr: Any = None,
    *,
    own_session: bool = True,
) -> "subprocess.Popen[bytes]":
    """One of our programs, with a task as JSON on its standard input. `own_session`: Ctrl-C in the terminal does not reach it."""
    with _memory_file() as given:
        given.write(json.dumps(msgspec.to_builtins(task)).encode())
        given.seek(0)
        return subprocess.Popen(  # noqa: S603 - our own interpreter
            command, stdin=given, stdout=stdout, stderr=stderr, env=_environ(), start_new_session=own_session
        )


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _UNSET}


def _memory_file() -> IO[bytes]:
    """A pipe could fill up while nobody reads, and a disk can be full."""
    return os.fdopen(os.memfd_create("forkpoint"), "r+b")


class Diagnosis:
    """Starts at once; poll `result`, and always call `end`. Raises OSError if no process can be started."""

    def __init__(self, task: Task, limit_s: float = LIMIT_S, *, own_session: bool = False) -> None:
        self._limit_s = limit_s
        self._until = time.monotonic() + limit_s
        self._out, self._err = _memory_file(), _memory_file()
        try:
            self._child = _start((*_DIAGNOSER, str(os.getpid())), task, self._out, self._err, own_session=own_session)
        except OSError:
            self._close()
            raise

    def result(self) -> Diagnosed | NotDiagnosed | None:
        """None: not yet."""
        code = self._child.poll()
        if code is not None:
            return self._read(code)
        if time.monotonic() < self._until:
            return None
        self.end()
        return NotDiagnosed(f"the diagnosis was not done after {self._limit_s:.0f} s")

    def end(self) -> None:
        self._child.kill()
        self._child.wait()
        self._close()

    def _read(self, code: int) -> Diagnosed | NotDiagnosed:
        try:
            self._out.seek(0)
            told = json.load(self._out)
            return msgspec.convert(told, NotDiagnosed if "why" in told else Diagnosed)
        except (ValueError, TypeError):  # a msgspec.ValidationError is a ValueError
            self._err.seek(0)
            last = self._err.read().decode(errors="replace").strip().rpartition("\n")[2]
            return NotDiagnosed(f"the diagnosis failed ({last or f'exit code {code}'})")

    def _close(self) -> None:
        self._out.close()
        self._err.close()


def diagnose(task: Task, limit_s: float = LIMIT_S) -> Diagnosed | NotDiagnosed:
    try:
        diagnosis = Diagnosis(task, limit_s)
    except OSError as error:
        return _not_started(error)
    try:
        while (found := diagnosis.result()) is None:
            time.sleep(_POLL_S)
        return found
    finally:
        diagnosis.end()


async def diagnose_async(task: Task, limit_s: float = LIMIT_S) -> Diagnosed | NotDiagnosed:
    """Kills the child when it is cancelled. Ctrl-C is for the server, which then cancels."""
    try:
        diagnosis = Diagnosis(task, limit_s, own_session=True)
    except OSError as error:
        return _not_started(error)
    try:
        while (found := diagnosis.result()) is None:  # noqa: ASYNC110 a child process sets no event
            await asyncio.sleep(_POLL_S)
        return found
    finally:
        diagnosis.end()


def _not_started(error: OSError) -> NotDiagnosed:
    return NotDiagnosed(f"the diagnosis could not be started ({error.strerror})")


# ---------------------------------------------------------------------------------------------------------------------
# Notices for services, sent by `sinks/worker.py`, which is killed when its time is up.

NOTIFY_S: Final = 30.0
"""For all services together, with all retries."""
_NOTIFY_START_S: Final = 5.0
"""For the process to start and exit."""


@dataclass(frozen=True, slots=True)
class NotifySettings:
    sinks: tuple[str, ...] = ()
    limit_s: float = NOTIFY_S
    undecided: bool = False


class Sending:
    """Starts at once and does not block: poll `outcomes`, or `wait`. Always call `end`."""

    def __init__(self, notice: Notice, settings: NotifySettings) -> None:
        """Raises OSError if no process can be started."""
        self._settings = settings
        self._until = time.monotonic() + settings.limit_s + _NOTIFY_START_S
        self._out = _memory_file()
        try:
            self._child = _start(_NOTIFIER, _notify_task(notice, settings), self._out, subprocess.DEVNULL)
        except OSError:
            self._out.close()
            raise

    def outcomes(self) -> tuple[SinkOutcome, ...] | None:
        """One for each service. None: not done yet."""
        if self._child.poll() is not None:
            return self._read()
        if time.monotonic() < self._until:
            return None
        self._child.kill()
        self._child.wait()
        return self._of_all(f"not done after {self._settings.limit_s:g} s, given up")

    def wait(self) -> tuple[SinkOutcome, ...]:
        while (found := self.outcomes()) is None:
            time.sleep(_POLL_S)
        return found

    def end(self) -> None:
        self._child.kill()
        self._child.wait()
        self._out.close()

    def _read(self) -> tuple[SinkOutcome, ...]:
        self._out.seek(0)
        try:
            return msgspec.convert(json.load(self._out), tuple[SinkOutcome, ...])
        except ValueError:  # a msgspec.ValidationError is one
            return self._of_all(f"the sending process failed (exit code {self._child.returncode})")

    def _of_all(self, why: str) -> tuple[SinkOutcome, ...]:
        return tuple(SinkOutcome(sink, why) for sink in self._settings.sinks)


def notify_alone(notice: Notice, settings: NotifySettings) -> None:
    """Sends from a process that outlives this one, which may end because of the incident. Raises OSError."""
    _let_run(_start(_NOTIFIER, _notify_task(notice, settings, tells=True)))


def _notify_task(notice: Notice, settings: NotifySettings, *, tells: bool = False) -> dict[str, Any]:
    given = {"limit_s": settings.limit_s, "undecided": settings.undecided, "tells": tells}
    return {"sinks": settings.sinks, "notice": notice, **given}


def split_sinks(told: str | None) -> tuple[str, ...]:
    """The names in `slack,pagerduty`."""
    return tuple(dict.fromkeys(name for part in (told or "").split(",") if (name := part.strip())))
