"""Stage 1: paths -> Capture. The kind of each file is found from its content; what cannot be used is said, and the
rest goes on.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from forkpoint.errors import InputError, UnreadableInput
from forkpoint.ingest import flight_recorder
from forkpoint.ingest.files import STDIN, find_files, read_bytes
from forkpoint.ingest.flight_recorder.summary import TablesBuilder, summarise
from forkpoint.ingest.jobs import separate
from forkpoint.ingest.live_stacks import looks_like_stacks, read_live_stacks
from forkpoint.ingest.logs import read_log
from forkpoint.ingest.naming import claim_rank, spelled_rank
from forkpoint.ingest.text import clean
from forkpoint.model.capture import Capture, LiveStack, Problem
from forkpoint.model.log import LogEvent
from forkpoint.model.trace import RankTrace

Progress = Callable[[int, int, str], None]
"""Called with (files done, files in all, the file at hand)."""

SNIFF = 65536
TEXT_SUFFIXES = (".txt", ".log", ".out", ".err")
TEXT_LIMIT = 1 << 30


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    tables: TablesBuilder = field(default_factory=TablesBuilder)
    traces: list[RankTrace] = field(default_factory=list)
    events: list[LogEvent] = field(default_factory=list)
    stacks: list[LiveStack] = field(default_factory=list)
    logs: list[tuple[str, int | None]] = field(default_factory=list)
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
    if not (reading.traces or reading.logs or reading.stacks):
        reasons = "; ".join(f"{p.file}: {p.text}" for p in reading.problems[:3]) or "no files found"
        raise UnreadableInput(f"nothing to diagnose in {', '.join(paths)}: {reasons}")
    tables = reading.tables.build()
    traces, left_out = separate(reading.traces, tables)
    return Capture(
        traces=traces,
        tables=tables,
        events=tuple(reading.events),
        stacks=tuple(reading.stacks),
        logs=tuple(reading.logs),
        problems=(*reading.problems, *left_out),
    )


def _read_file(path: str, reading: _Reading) -> None:
    data = sys.stdin.buffer.read(flight_recorder.MAX_BYTES) if path == STDIN else None
    head = data[:SNIFF] if data is not None else _head(path)
    if not head:
        if PurePath(path).suffix not in TEXT_SUFFIXES:  # an empty log or stack file is nothing to speak of
            raise UnreadableInput(f"{path}: empty: its rank was ended before it could write")
        return
    if flight_recorder.looks_like_dump(head):
        _read_dump(path, data if data is not None else read_bytes(path, flight_recorder.MAX_BYTES), reading)
    elif b"\x00" in head:
        raise UnreadableInput(f"{path}: neither a dump nor text; left out")
    else:
        _read_text(path, data if data is not None else read_bytes(path, TEXT_LIMIT), reading)


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(SNIFF)
    except OSError as error:
        raise UnreadableInput(f"{path}: cannot be read ({error.strerror}); check its permissions") from error


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


def _read_text(path: str, data: bytes, reading: _Reading) -> None:
    text = data.decode("utf-8", "replace")
    rank = spelled_rank(path)
    for stacks in read_live_stacks(text, path, rank):
        if stacks.rank is not None and stacks.main:
            reading.stacks.append(LiveStack(stacks.rank, path, stacks.line, stacks.stack))
    if not looks_like_stacks(text[:SNIFF]):
        log = read_log(data, path, rank)
        reading.logs += [
            (path, speaker) for speaker in sorted(log.speakers | ({rank} if rank is not None else set()))
        ] or [(path, None)]
        reading.events += log.events
        reading.problems += log.problems
