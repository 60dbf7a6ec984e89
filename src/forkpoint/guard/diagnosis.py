"""A folder of evidence -> a verdict, by `forkpoint diagnose` in a process of its own: the same pipeline as after a failure,
and nothing of it in the training process.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_LIMIT_S: Final = 120.0
_UNSET: Final = ("FORKPOINT", "RANK", "WORLD_SIZE", "LOCAL_RANK")


@dataclass(frozen=True, slots=True)
class Told:
    """What the report says, as far as the guard acts on it."""

    cause: str
    suspects: tuple[int, ...]
    confidence: float
    summary: str
    group: str
    sites: tuple[str, ...]
    raw: str
    """The whole verdict, as JSON."""

    @property
    def key(self) -> tuple[object, ...]:
        return self.cause, self.suspects, self.group


class Diagnosis:
    """Started when made; ask `result` now and then."""

    def __init__(self, folder: Path, source: str | None) -> None:
        self._until = time.monotonic() + _LIMIT_S
        self._out = os.fdopen(os.memfd_create("verdict"), "r+b")  # a pipe could fill up, and a disk be full
        command = [sys.executable, "-P", "-m", "forkpoint", "diagnose", "--json", str(folder)]
        command += ["--source", source] if source else []
        environ = {name: value for name, value in os.environ.items() if name not in _UNSET}
        self._child = subprocess.Popen(  # noqa: S603 our own program
            command, stdin=subprocess.DEVNULL, stdout=self._out, stderr=subprocess.DEVNULL, env=environ
        )

    def result(self) -> Told | str | None:
        """None: not yet. A text: why there is none."""
        code = self._child.poll()
        if code is None:
            if time.monotonic() < self._until:
                return None
            self.end()
            return f"the diagnosis was not done after {_LIMIT_S:.0f} s"
        try:
            self._out.seek(0)
            return _read(self._out.read().decode())
        except (ValueError, KeyError, TypeError):
            return f"the diagnosis broke off (exit code {code})"

    def end(self) -> None:
        self._child.kill()
        self._child.wait()
        self._out.close()


def _read(text: str) -> Told:
    raw: dict[str, Any] = json.loads(text)
    divergence: dict[str, Any] = raw["divergence"] or {}
    return Told(
        cause=raw["cause"],
        suspects=tuple(raw["suspects"]),
        confidence=raw["confidence"],
        summary=raw["summary"],
        group=(divergence.get("group") or {}).get("name", ""),
        sites=tuple(f"{s['file']}:{s['line']}" + (f" ({s['why']})" if s.get("why") else "") for s in raw["sites"][:3]),
        raw=text,
    )
