"""Sends a notice from a separate process (`sinks/worker.py`), which is killed when its time is up.

The guard uses it inside a training process, so this file imports neither the engine nor a client of any service.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from forkpoint.live.diagnosing import child_environ, memory_file
from forkpoint.sinks.notice import Notice
from forkpoint.sinks.sink import SinkOutcome

LIMIT_S: Final = 30.0
"""For all services together, with all retries."""
_START_S: Final = 5.0
"""For the process to start and exit."""
_POLL_S: Final = 0.02
_COMMAND: Final = (sys.executable, "-P", "-m", "forkpoint.sinks.worker")


@dataclass(frozen=True, slots=True)
class NotifySettings:
    sinks: tuple[str, ...] = ()
    limit_s: float = LIMIT_S
    undecided: bool = False


class Sending:
    """Starts at once and does not block: poll `outcomes`, or `wait`. Always call `end`."""

    def __init__(self, notice: Notice, settings: NotifySettings) -> None:
        """Raises OSError if no process can be started."""
        self._settings = settings
        self._until = time.monotonic() + settings.limit_s + _START_S
        self._out = memory_file()
        try:
            self._child = _start(_task(notice, settings), stdout=self._out, stderr=subprocess.DEVNULL)
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
    _left[:] = [*(child for child in _left if child.poll() is None), _start(_task(notice, settings, tells=True))]


_left: Final[list[subprocess.Popen[bytes]]] = []
"""Children that may still run; those that have ended are reaped when the next one starts."""


def _task(notice: Notice, settings: NotifySettings, *, tells: bool = False) -> dict[str, Any]:
    given = {"limit_s": settings.limit_s, "undecided": settings.undecided, "tells": tells}
    return {"sinks": list(settings.sinks), "notice": msgspec.to_builtins(notice), **given}


def _start(task: dict[str, Any], stdout: Any = subprocess.DEVNULL, stderr: Any = None) -> "subprocess.Popen[bytes]":
    """In its own session: Ctrl-C in a terminal goes to the command, which then ends this child."""
    with memory_file() as given:
        given.write(json.dumps(task).encode())
        given.seek(0)
        return subprocess.Popen(  # noqa: S603 - our own interpreter
            _COMMAND, stdin=given, stdout=stdout, stderr=stderr, env=child_environ(), start_new_session=True
        )


def split_sinks(told: str | None) -> tuple[str, ...]:
    """The names in `slack,pagerduty`."""
    return tuple(dict.fromkeys(name for part in (told or "").split(",") if (name := part.strip())))
