"""Files and folders that the job writes to: dumps are read when they change, of logs only what was added.

Log lines are parsed as they are added, by the same reader that reads whole logs when there is something to judge. So a log
of many gigabytes costs only what is added to it.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from forkpoint.errors import UsageError
from forkpoint.evidence.file_names import spelled_rank
from forkpoint.evidence.files import SNIFF, find_files, is_archive
from forkpoint.evidence.logs import read_log
from forkpoint.live.watch.sources import Dump, Gathered, Spool
from forkpoint.model.log import LogEvent
from forkpoint.traces.dump import looks_like_dump

_PIECE = 64 << 20
"""Bytes of a log in memory at a time."""
_BACK = 1 << 16
"""Read again before what was added: a traceback may have been half written at the last look."""
_MAX_NOTES = 5

_Version = tuple[int, int]


@dataclass(slots=True)
class _File:
    version: _Version
    seen: float
    is_dump: bool
    parsed: int = 0
    """Bytes of a log that were parsed."""


class Paths:
    name = "paths"

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._files: dict[str, _File] = {}

    def gather(self, spool: Spool, *, stacks: bool) -> Gathered:  # noqa: ARG002 - files cannot be asked for stacks
        notes: list[str] = []
        said: list[LogEvent] = []
        has_grown = False
        there: dict[str, _File] = {}
        for path in self._find(str(spool.root), notes):
            try:
                file = there[path] = self._look_at(path)
                before = file.parsed
                said += [] if file.is_dump else _parse_added(path, file)
            except OSError as error:
                notes.append(f"{path}: cannot be read ({error.strerror})")
                there.pop(path, None)
                continue
            has_grown = has_grown or file.parsed != before
        self._files = there
        dumps = tuple(Dump(path, f.seen, f.version[0] / 1e9) for path, f in there.items() if f.is_dump)
        texts = tuple(path for path, file in there.items() if not file.is_dump)
        left = len(notes) - _MAX_NOTES
        notes = [*notes[:_MAX_NOTES], *([f"and {left} more"] if left > 0 else [])]
        return Gathered(dumps, texts=texts, has_grown=has_grown, said=tuple(said), notes=tuple(notes))

    def _find(self, spool: str, notes: list[str]) -> list[str]:
        """The spool may be inside a watched folder: copies in it are left out."""
        found: list[str] = []
        for path in self._paths:
            try:
                found += find_files([path])
            except UsageError:
                notes.append(f"{path}: not there yet")
        if not any(Path(spool).is_relative_to(Path(path).resolve()) for path in self._paths):
            return list(dict.fromkeys(found))
        return [f for f in dict.fromkeys(found) if not Path(f).resolve().is_relative_to(spool)]

    def _look_at(self, path: str) -> _File:
        """Raises OSError."""
        status = Path(path).stat()
        version = (status.st_mtime_ns, status.st_size)
        known = self._files.get(path)
        if known and known.version == version:
            return known
        with Path(path).open("rb") as stream:
            head = stream.read(SNIFF)
        file = _File(version, time.monotonic(), looks_like_dump(head))
        if is_archive(head):
            file.parsed = status.st_size  # packed, so nobody writes to it: read when there is something to judge
        elif known and not known.is_dump and known.parsed <= status.st_size:
            file.parsed = known.parsed  # a file that got shorter is read from its start
        return file


def _parse_added(path: str, file: _File) -> list[LogEvent]:
    """Events in the complete lines that were added; updates `file.parsed`. Raises OSError."""
    said: list[LogEvent] = []
    with Path(path).open("rb") as stream:
        for piece in _whole_lines(stream, file):
            said += read_log(piece, path, spelled_rank(path)).events
    return said


def _whole_lines(stream: BinaryIO, file: _File) -> Iterator[bytes]:
    while file.parsed < file.version[1]:
        start = max(0, file.parsed - _BACK)
        stream.seek(start)
        data = stream.read(min(_PIECE, file.version[1] - start))
        end = data.rfind(b"\n") + 1
        if len(data) == _PIECE and start + end <= file.parsed:
            end = len(data)  # a line longer than a piece is not a log line: skip it
        if start + end <= file.parsed:
            return
        begin = data.find(b"\n") + 1 if start else 0
        file.parsed = start + end
        yield data[begin:end]
