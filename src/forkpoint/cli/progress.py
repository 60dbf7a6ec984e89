"""One updating line on a terminal while long work runs."""

import shutil
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from forkpoint.report.escape import escape

_SILENT_S = 1.0
"""Work shorter than this says nothing."""
_INTERVAL_S = 0.1
_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Called with (done, total, what); writes nothing when quiet or when the stream is no terminal."""

    def __init__(self, stream: TextIO, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._shown = False
        self._clock = clock
        self._on = stream.isatty() and not quiet
        self._next = clock() + _SILENT_S

    def __call__(self, done: int, total: int, what: str) -> None:
        if not self._on or self._clock() < self._next:
            return
        self._next = self._clock() + _INTERVAL_S
        columns = shutil.get_terminal_size().columns
        line = f"{done}/{total} {escape(what)}"[: columns - 1]
        self._write(f"{_CLEAR_LINE}{line}")
        self._shown = True

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
