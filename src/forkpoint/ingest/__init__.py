"""Stage 1: paths -> Capture. The kind of each file is found from its content; what cannot be used is said, and the
rest goes on.
"""

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

from forkpoint.errors import InputError, UnreadableInput
from forkpoint.ingest import flight_recorder
from forkpoint.ingest.files import SNIFF, STDIN, find_files, is_archive
from forkpoint.ingest.flight_recorder.summary import TablesBuilder, summarise
from forkpoint.ingest.jobs import separate
from forkpoint.ingest.naming import claim_rank
from forkpoint.ingest.text import clean
from forkpoint.model.capture import Capture, Problem
from forkpoint.model.trace import RankTrace

if TYPE_CHECKING:
    from forkpoint.ingest.text_files import TextReading

    _Stream = io.BufferedReader[io.FileIO]

Progress = Callable[[int, int, str], None]
"""Called with (files done, files in all, the file at hand)."""

TEXT_SUFFIXES = (".txt", ".log", ".out", ".err")


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    tables: TablesBuilder = field(default_factory=TablesBuilder)
    traces: list[RankTrace] = field(default_factory=list)
    texts: "list[TextReading]" = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    """Files of text in which nothing stands."""
    problems: list[Problem] = field(default_factory=list)


def read(paths: Sequence[str], progress: Progress | None = None) -> Capture:
    """Read everything behind the paths. Raises UnreadableInput when nothing of it could be used."""
    reading = _Reading()
    files = find_files(paths)
    for done, path in enumerate(files):
        if progress:
            progress(done, len(files), path)
        try:
            _read_file(path, reading)
        except InputError as error:
            reading.problems.append(Problem(path, clean(str(error).removeprefix(f"{path}: "))))
    if not (reading.traces or any(text.says_anything for text in reading.texts)):
        reasons = "; ".join(f"{p.file}: {p.text}" for p in reading.problems[:3]) or "no files found"
        raise UnreadableInput(f"nothing to diagnose in {', '.join(paths)}: {reasons}")
    tables = reading.tables.build()
    traces, left_out = separate(reading.traces, tables)
    capture = Capture(traces=traces, tables=tables, problems=(*reading.problems, *left_out))
    if not reading.texts:
        return capture
    from forkpoint.ingest.text_files import with_texts  # noqa: PLC0415 - their readers are slow to import

    return with_texts(capture, reading.texts, reading.empty)


def _read_file(path: str, reading: _Reading) -> None:
    try:
        raw = cast("io.FileIO", sys.stdin.buffer) if path == STDIN else io.FileIO(path)
        with io.BufferedReader(raw, SNIFF) as stream:
            if is_archive(stream.peek(SNIFF)):
                _read_archive(stream, path, reading)
            else:
                _read_stream(stream, path, reading)
    except OSError as error:
        raise UnreadableInput(f"{path}: cannot be read ({error.strerror}); check its permissions") from error


def _read_archive(stream: "_Stream", path: str, reading: _Reading) -> None:
    from forkpoint.ingest.logs.archives import open_members  # noqa: PLC0415 - slow to import

    for member in open_members(stream, path):
        if isinstance(member, Problem):
            reading.problems.append(member)
            continue
        try:
            _read_stream(io.BufferedReader(cast("io.FileIO", member.stream), SNIFF), member.name, reading)
        except InputError as error:
            reading.problems.append(Problem(member.name, clean(str(error).removeprefix(f"{member.name}: "))))


def _read_stream(stream: "_Stream", name: str, reading: _Reading) -> None:
    head = stream.peek(SNIFF)[:SNIFF]
    if not head:
        if PurePath(name).suffix not in TEXT_SUFFIXES:
            raise UnreadableInput(f"{name}: empty: its rank was ended before it could write")
        reading.empty.append(name)
    elif flight_recorder.looks_like_dump(head):
        _read_dump(name, stream.read(flight_recorder.MAX_BYTES + 1), reading)
    elif b"\x00" in head:
        raise UnreadableInput(f"{name}: neither a dump nor text; left out")
    else:
        from forkpoint.ingest.text_files import read_text  # noqa: PLC0415 - its readers are slow to import

        text = read_text(stream, name)
        reading.texts.append(text)
        reading.problems += text.problems


def _read_dump(path: str, data: bytes, reading: _Reading) -> None:
    columns = flight_recorder.decode(data, path)
    claim = claim_rank(columns, path)
    if claim.problem:
        reading.problems.append(Problem(path, claim.problem))
    if claim.rank is not None:
        trace = summarise(columns, claim.rank, path, reading.tables)
        reading.traces.append(trace)
        if trace.cut:
            reading.problems.append(Problem(path, trace.cut))
