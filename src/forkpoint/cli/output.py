"""What commands print and write: remarks and progress on standard error, verdicts, and files (written atomically)."""

import os
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from forkpoint import __version__
from forkpoint.cli.options import MIN_WIDTH
from forkpoint.errors import UsageError
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from forkpoint.model.capture import InternalProblem, Problem
    from forkpoint.model.verdict import Verdict

STDOUT = "-"
_COMFORTABLE_WIDTH = 120
_MAX_PROBLEMS = 10
_BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def say(text: str) -> None:
    """A remark on standard error."""
    print(f"forkpoint: {escape(text)}", file=sys.stderr, flush=True)


def say_problems(problems: "Sequence[Problem]") -> None:
    for problem in problems[:_MAX_PROBLEMS]:
        say(f"{problem.file}: {problem.text}")
    if len(problems) > _MAX_PROBLEMS:
        say(f"and {len(problems) - _MAX_PROBLEMS} more files with problems")


def say_broken(broken: "Sequence[InternalProblem]") -> None:
    """Parts of forkpoint that failed, with a file for a bug report."""
    from tempfile import NamedTemporaryFile

    from forkpoint.parts import bug_report

    for says in dict.fromkeys(problem.says for problem in broken):
        say(says)
    try:
        with NamedTemporaryFile("w", prefix="forkpoint-bug-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.writelines(f"{escape(line)}\n" for line in bug_report(broken, __version__).splitlines())
    except OSError as error:
        say(f"the bug report could not be written ({error.strerror})")
        return
    say(f"this is a bug in forkpoint, not in your job; please report it with {file.name}, after checking its contents")


def terminal_width(most: int = _COMFORTABLE_WIDTH) -> int:
    return max(MIN_WIDTH, min(shutil.get_terminal_size().columns, most))


def print_verdict(verdict: "Verdict", *, as_json: bool, width: int | None, verbose: bool = False) -> None:
    if as_json:
        from forkpoint.report.json_report import render_json

        print(render_json(verdict))
        return
    from forkpoint.report.text import render_text

    width = width or terminal_width()
    text = render_text(verdict, width, verbose=verbose)
    if not sys.stdout.isatty() and os.environ.keys().isdisjoint(_COLOURS_ANYWAY):
        print(text.plain)  # without importing rich's console, which takes as long as a small diagnosis
        return
    from rich.console import Console

    # rich keeps bold and dim under NO_COLOR; users who set it want plain text.
    console = Console(width=width, color_system=None if os.environ.get("NO_COLOR") else "auto")
    console.print(text, soft_wrap=True, highlight=False)


_COLOURS_ANYWAY = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables by which rich takes a pipe for a terminal."""


def print_sentence(verdict: "Verdict") -> None:
    from forkpoint.report.text import render_sentence

    print(render_sentence(verdict))


def exit_code(verdict: "Verdict") -> int:
    return {"healthy": 0, "inconclusive": 4}.get(verdict.cause, 1)


@contextmanager
def needing_extra(what: str, extra: str) -> Generator[None]:
    """If an import inside the block fails, the error says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "forkpoint":
            raise
        raise UsageError(f"{what} needs {package}: pip install 'forkpoint[{extra}]'") from error


def import_numpy() -> None:
    """Imports numpy without its threads: it starts one per core, which takes longer than most diagnoses, and we multiply no
    matrices. The environment is restored, because programs that we start may need the threads.
    """
    unset = [name for name in _BLAS_THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, "1"))
    import numpy as np

    del np
    for name in unset:
        del os.environ[name]


def check_outputs(args: Namespace, *names: str) -> None:
    """`check_writable` for each of these options that names a file."""
    for name in names:
        path = getattr(args, name)
        if path not in (None, STDOUT):
            check_writable(f"--{name}", path)


def check_writable(option: str, path: str) -> None:
    """Raises UsageError early, before the work, if the file cannot be written."""
    folder = Path(path).parent
    if Path(path).is_dir():
        raise UsageError(f"{option} {path}: is a directory; give a file in it")
    if not folder.is_dir():
        raise UsageError(f"{option} {path}: {folder} is not a directory; create it first")
    # A file is replaced, so its directory must be writable; a pipe or a device is written in place.
    in_place = Path(path).exists() and not Path(path).is_file()
    if not os.access(path if in_place else folder, os.W_OK):
        raise UsageError(f"{option} {path}: is not writable; choose another path")


def write_file(path: str, pieces: Iterable[str]) -> None:
    """Atomic: readers see the old file or the new one. Raises UsageError if it cannot be written."""
    write_bytes(path, (piece.encode("utf-8", "backslashreplace") for piece in pieces))


def write_bytes(path: str, pieces: Iterable[bytes]) -> None:
    """As write_file."""
    target = Path(os.path.realpath(path))
    in_place = target.exists() and not target.is_file()
    part = target if in_place else target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.writelines(pieces)
        if not in_place:
            part.replace(target)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}; choose another path") from error
    finally:
        if not in_place:
            part.unlink(missing_ok=True)


_SILENT_S = 1.0
"""Work shorter than this shows no progress."""
_INTERVAL_S = 0.1
_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """One updating line on a terminal. Called with (done, total, what); silent when quiet or not on a terminal."""

    def __init__(
        self, stream: TextIO, *, quiet: bool, in_bytes: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`in_bytes`: counts bytes, and shows the time left."""
        self._stream = stream
        self._shown = False
        self._clock = clock
        self.is_on = stream.isatty() and not quiet
        self._begun = clock()
        self._next = self._begun + _SILENT_S
        self._in_bytes = in_bytes

    def __call__(self, done: int, total: int, what: str) -> None:
        if not self.is_on or self._clock() < self._next:
            return
        now = self._clock()
        self._next = now + _INTERVAL_S
        columns = shutil.get_terminal_size().columns
        line = f"{self._count(done, total, now)} {escape(what)}"[: columns - 1]
        self._write(f"{_CLEAR_LINE}{line}")
        self._shown = True

    def _count(self, done: int, total: int, now: float) -> str:
        if not self._in_bytes:
            return f"{done}/{total}"
        left_s = (now - self._begun) * (total - done) / done if done else 0.0
        left = f", {left_s:.0f} s left" if left_s >= 1 else ""
        return f"{done / total:.0%} of {total / 1e6:.0f} MB{left}:"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._write(_CLEAR_LINE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
