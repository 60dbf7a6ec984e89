"""Run the linter in a process of its own: what it finds, and what it costs."""

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Related:
    file: str
    line: int
    says: str


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    file: str
    """Relative to the folder in which the linter ran."""
    line: int
    function: str
    message: str
    condition: str | None
    why: str | None
    advisory: bool
    related: tuple[Related, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    cpu_s: float
    """User and system time of the linter and of the processes it waited for."""
    wall_s: float
    peak_mb: float
    """Of the largest process. A child starts with its parent's peak, so it is at least that of this program."""


@dataclass(frozen=True, slots=True)
class Run:
    cost: Cost
    violations: tuple[Violation, ...] = ()
    files: int = 0
    lines: int = 0
    notes: int = 0
    failure: str | None = None

    @property
    def default(self) -> tuple[Violation, ...]:
        return tuple(violation for violation in self.violations if not violation.advisory)


@dataclass(frozen=True, slots=True)
class Linter:
    command: tuple[str, ...]
    limit_s: float
    keep_cache: Path | None = None
    """Where the linter may keep its cache between runs; otherwise each run starts cold."""

    def run(self, folder: Path, targets: Sequence[str] = (".",), *, advisory: bool) -> Run:
        if self.keep_cache is not None:
            return self.run_with_cache(self.keep_cache, folder, targets, advisory=advisory)
        with tempfile.TemporaryDirectory(prefix="forkpoint-lint-") as cache:
            return self.run_with_cache(Path(cache), folder, targets, advisory=advisory)

    def run_with_cache(self, cache: Path, folder: Path, targets: Sequence[str], *, advisory: bool) -> Run:
        command = [*self.command, "--json", *(["--advisory"] if advisory else []), *targets]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            env = {**os.environ, "XDG_CACHE_HOME": os.fspath(cache)}
            begun = time.perf_counter()
            # A group of its own, so that the time limit also ends processes that the linter started.
            process = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=err, process_group=0)
            watchdog = threading.Timer(self.limit_s, _kill_group, [process.pid])
            watchdog.start()
            try:
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                _kill_group(process.pid)
                raise
            finally:
                watchdog.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            wall_s = time.perf_counter() - begun
            cost = Cost(usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss / 1000)
            if process.returncode == -signal.SIGKILL and wall_s >= self.limit_s:
                return Run(cost, failure=f"not done after {self.limit_s:g} s")
            out.seek(0)
            err.seek(0)
            try:
                return _read(json.load(out), folder, cost)
            except ValueError:
                # A crash of Python also exits with 1, so the exit code alone does not say whether it worked.
                said = err.read().decode(errors="replace").strip().splitlines() or ["nothing"]
                return Run(cost, failure=f"exits with {process.returncode}, no JSON: {said[-1][:200]}")


def _read(found: dict[str, Any], folder: Path, cost: Cost) -> Run:
    if found.get("schema") != "forkpoint.lint/1":
        return Run(cost, failure=f"prints schema {found.get('schema')}")
    violations = tuple(_violation(each, folder) for each in found["violations"])
    return Run(cost, violations, found["files"], found["lines"], len(found["notes"]))


def _violation(each: dict[str, Any], folder: Path) -> Violation:
    return Violation(
        rule=each["rule"],
        file=_relative(each["file"], folder),
        line=each["line"],
        function=each["function"],
        message=each["message"],
        condition=each["condition"],
        why=each["why"],
        advisory=each["advisory"],
        related=tuple(Related(_relative(at["file"], folder), at["line"], at["says"]) for at in each["related"]),
    )


def _relative(file: str, folder: Path) -> str:
    return os.path.relpath(folder / file, folder)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
