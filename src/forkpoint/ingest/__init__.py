"""Stage 1: paths -> Capture. The kind of each file is found from its content; what cannot be used is said, and the
rest goes on.
"""

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, BinaryIO, cast

from forkpoint.errors import InputError, UnreadableInput
from forkpoint.ingest import flight_recorder
from forkpoint.ingest.files import STDIN, find_files
from forkpoint.ingest.flight_recorder.summary import TablesBuilder, summarise
from forkpoint.ingest.jobs import separate
from forkpoint.ingest.live_stacks import looks_like_stacks, read_live_stacks
from forkpoint.ingest.logs import open_members, read_log
from forkpoint.ingest.logs.archives import is_archive
from forkpoint.ingest.machine import (
    agree,
    looks_like_kernel_log,
    looks_like_ras,
    read_kernel_log,
    read_places,
    read_ras,
)
from forkpoint.ingest.machine.remarks import kernel_remarks, ras_remarks
from forkpoint.ingest.naming import claim_rank, spelled_rank
from forkpoint.ingest.text import clean
from forkpoint.model.capture import Capture, LiveStack, Problem, Remark
from forkpoint.model.log import LogEvent
from forkpoint.model.trace import RankTrace
from forkpoint.model.world import Place

if TYPE_CHECKING:
    _Stream = io.BufferedReader[io.FileIO]

Progress = Callable[[int, int, str], None]
"""Called with (files done, files in all, the file at hand)."""

SNIFF = 65536
TEXT_SUFFIXES = (".txt", ".log", ".out", ".err")
IN_MEMORY = 1 << 24
"""Text beyond this is read only as a log, as a stream."""


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    tables: TablesBuilder = field(default_factory=TablesBuilder)
    traces: list[RankTrace] = field(default_factory=list)
    events: list[LogEvent] = field(default_factory=list)
    stacks: list[LiveStack] = field(default_factory=list)
    logs: list[tuple[str, int | None]] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
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
    if not (reading.traces or reading.logs or reading.stacks or reading.remarks):
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
        remarks=tuple(reading.remarks),
        places=agree(reading.places),
        problems=(*reading.problems, *left_out),
    )


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
        if PurePath(name).suffix not in TEXT_SUFFIXES:  # an empty log or stack file is nothing to speak of
            raise UnreadableInput(f"{name}: empty: its rank was ended before it could write")
    elif flight_recorder.looks_like_dump(head):
        _read_dump(name, stream.read(flight_recorder.MAX_BYTES + 1), reading)
    elif b"\x00" in head:
        raise UnreadableInput(f"{name}: neither a dump nor text; left out")
    else:
        _read_text(stream, name, head.decode("utf-8", "replace"), reading)


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


def _read_text(stream: "_Stream", name: str, head: str, reading: _Reading) -> None:
    """Kernel messages, RAS answers, stacks and logs. Only a log is read on beyond what fits in memory."""
    data = stream.read(IN_MEMORY)
    text = data.decode("utf-8", "replace")
    if looks_like_kernel_log(head):
        reading.remarks += kernel_remarks(read_kernel_log(text, name))
    elif looks_like_ras(head):
        reading.remarks += ras_remarks(read_ras(text, name))
    else:
        rank = spelled_rank(name)
        for stacks in read_live_stacks(text, name, rank):
            if stacks.rank is not None and stacks.main:
                reading.stacks.append(LiveStack(stacks.rank, name, stacks.line, stacks.stack))
        if not looks_like_stacks(head):
            _read_log(_whole(data, stream, name, reading), text, name, rank, reading)


def _whole(data: bytes, stream: "_Stream", name: str, reading: _Reading) -> io.BufferedIOBase:
    if len(data) < IN_MEMORY:
        return io.BytesIO(data)
    if stream.seekable():
        stream.seek(0)
        return stream
    reading.problems.append(Problem(name, f"only its first {IN_MEMORY >> 20} MB were read; unpack it to read all"))
    return io.BytesIO(data)


def _read_log(source: io.BufferedIOBase, text: str, name: str, rank: int | None, reading: _Reading) -> None:
    log = read_log(cast("BinaryIO", source), name, rank)
    speakers = log.speakers | ({rank} if rank is not None else set[int]())
    reading.logs += [(name, speaker) for speaker in sorted(speakers)] or [(name, None)]
    reading.events += log.events
    reading.problems += log.problems
    reading.places += read_places(io.StringIO(text), name, rank)
