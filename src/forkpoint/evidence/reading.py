"""Stage 1: paths -> Capture. The kind of a file is detected from its content. Unusable files are reported, not fatal."""

import io
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

import numpy as np
from msgspec import Struct, field, structs

from forkpoint.errors import InputError, UnreadableInput
from forkpoint.evidence.confined import Count, File, can_confine, read_confined
from forkpoint.evidence.file_names import FileNames, RankClaim, RankHints, claim_by_hints, claim_rank
from forkpoint.evidence.files import (
    SNIFF,
    SUMMARY,
    WithoutNuls,
    find_files,
    find_ways_out,
    is_archive,
    is_url,
    open_file,
    shown,
)
from forkpoint.evidence.links import LeadsOut
from forkpoint.evidence.text import clean
from forkpoint.model.capture import BROKE_ON_IT, Capture, InternalProblem, Problem, SetAside
from forkpoint.model.entries import Tables
from forkpoint.model.records import HEAD, RecordStore, TraceRecord
from forkpoint.model.tables import SharedTables
from forkpoint.model.traces import Traces
from forkpoint.parts import Parts, internal_problem, work_without_some
from forkpoint.traces import dump
from forkpoint.traces.admission import ADMIT_BY_PROOF, Choice, admit
from forkpoint.traces.native import Claimable, NativePacker
from forkpoint.traces.summary import summarise

if TYPE_CHECKING:
    from forkpoint.evidence.owners import TextReading

    _Stream = io.BufferedReader[io.FileIO]

# ---------------------------------------------------------------------------------------------------------------------
# From paths to what each file says.

Progress = Callable[[int, int, str], None]
"""Called with (done, total, what): bytes and the current file while files are read, otherwise files or nodes."""

WAY_OUT = "a link that points outside its folder; not followed (use --follow-links)"
_log = logging.getLogger(__name__)
TEXT_SUFFIXES = (".txt", ".log", ".out", ".err")


def read(
    paths: Sequence[str],
    progress: Progress | None = None,
    choice: Choice = ADMIT_BY_PROOF,
    *,
    follow_links: bool = False,
    in_process: bool = False,
) -> Capture:
    """Reads all files at these paths. Raises UnreadableInput if none could be used."""
    return read_files(paths, progress, follow_links=follow_links, in_process=in_process).capture(choice)


def read_files(
    paths: Sequence[str],
    progress: Progress | None = None,
    origin: str = "",
    *,
    follow_links: bool = False,
    in_process: bool = False,
) -> "Reading":
    """What each file says, not yet combined. `origin`: the machine that holds the files, if not this one; a prefix of their
    names. `follow_links`: follow links that point outside a folder, too.
    """
    files = find_files(paths, follow_links=follow_links)
    roots = () if follow_links else tuple(paths)
    reading = Reading(names=FileNames(files))
    reading.problems += [Problem(link, WAY_OUT) for link in (() if follow_links else find_ways_out(paths))]
    meter = _ReadMeter(files, progress) if progress else None
    named = [
        (path, f"{origin}:{os.path.abspath(path)}" if origin and not is_url(path) else shown(path)) for path in files
    ]
    if in_process or not can_confine():
        for file in named:
            _read_one(file, reading, roots, meter.begin(file[0]) if meter else None)
    else:
        read_confined(named, reading, partial(_read_one, roots=roots), meter.begin if meter else None)
    reading.require(paths)
    return reading


def _read_one(file: File, reading: "Reading", roots: Sequence[str], count: Count | None) -> None:
    """Never raises: a bad file must not keep the others from being read."""
    path, name = file
    try:
        _read_file(path, name, reading, roots, count)
    except InputError as error:
        reading.problems.append(Problem(name, clean(str(error).removeprefix(f"{name}: "))))
    except MemoryError:
        text = "needs more memory than one file may use; left out. Use --in-process if you trust it"
        reading.problems.append(Problem(name, text))
    except Exception as error:  # noqa: BLE001 - see the docstring
        broken = internal_problem(f"the reading of {clean(name)}", error)
        reading.internal.append(broken)
        reading.problems.append(Problem(name, f"forkpoint failed on it ({broken.error}); left out"))
    _log.debug("read %s", name)


class _ReadMeter:
    """Reports how much of all files has been read. A file may be read twice or only in part; it counts once, when done."""

    def __init__(self, files: Sequence[str], progress: Progress) -> None:
        self._sizes = {path: _size(path) for path in files}
        self._total = max(1, sum(self._sizes.values()))
        self._progress = progress
        self._done, self._within, self._path = 0, 0, ""

    def begin(self, path: str) -> Callable[[int], None]:
        """Starts a file. The returned function is called with the number of bytes as they are read."""
        self._done += self._sizes.get(self._path, 0)
        self._path, self._within = path, 0
        self._count(0)
        return self._count

    def _count(self, size: int) -> None:
        self._within = min(self._within + size, self._sizes[self._path])
        self._progress(self._done + self._within, self._total, shown(self._path))


def _size(path: str) -> int:
    """0 for pipes and URLs: their size is not known."""
    try:
        return 0 if is_url(path) else os.stat(path).st_size
    except OSError:
        return 0


def _read_file(
    path: str, name: str, reading: "Reading", roots: Sequence[str], count: Callable[[int], None] | None
) -> None:
    try:
        with open_file(path, roots, count) as stream:
            head = stream.peek(SNIFF)[:SNIFF]
            if is_archive(head):
                _read_archive(stream, name, reading)
            else:
                _read_unpacked(stream, head, name, reading)
    except LeadsOut as error:
        raise UnreadableInput(f"{name}: {WAY_OUT}") from error
    except OSError as error:
        raise UnreadableInput(f"{name}: cannot be read ({error.strerror}); check its permissions") from error


def _read_archive(stream: "_Stream", path: str, reading: "Reading") -> None:
    from forkpoint.evidence.archives import open_members  # noqa: PLC0415 - slow to import

    for member in open_members(stream, path):
        if isinstance(member, Problem):
            reading.problems.append(member)
            continue
        try:
            read_stream(io.BufferedReader(cast("io.FileIO", member.stream), SNIFF), member.name, reading)
        except InputError as error:
            reading.problems.append(Problem(member.name, clean(str(error).removeprefix(f"{member.name}: "))))
        reading.after_part()


def read_stream(stream: "_Stream", name: str, reading: "Reading") -> None:
    """Adds what one file says. Does not unpack archives. Raises InputError."""
    _read_unpacked(stream, stream.peek(SNIFF)[:SNIFF], name, reading)


def _read_unpacked(stream: "_Stream", head: bytes, name: str, reading: "Reading") -> None:
    if not head:
        if PurePath(name).suffix not in TEXT_SUFFIXES:
            raise UnreadableInput(f"{name}: empty; a dump is empty if its rank was killed before it could write it")
        reading.empty.append(name)
    elif dump.looks_like_dump(head):
        reading.add_dump(name, stream)
    elif head.startswith(SUMMARY):
        from forkpoint.evidence.summary_file import add_summary  # noqa: PLC0415 - slow to import

        add_summary(stream, name, reading)
    elif b"\x00" in head:
        _read_past_nuls(stream, name, reading)
    elif _is_binary(head):
        raise UnreadableInput(f"{name}: neither a dump nor text; ignored")
    else:
        from forkpoint.evidence.text_files import read_text  # noqa: PLC0415 - its readers are slow to import

        text = read_text(stream, name, reading.names)
        reading.texts.append(text)
        reading.problems += text.problems


def _read_past_nuls(stream: "_Stream", name: str, reading: "Reading") -> None:
    """A log that was truncated in place (logrotate's copytruncate) starts with NULs, up to the writer's old position."""
    rest = io.BufferedReader(cast("io.FileIO", WithoutNuls(stream)), SNIFF)
    head = rest.peek(SNIFF)[:SNIFF]
    if not head or dump.looks_like_dump(head):
        raise UnreadableInput(f"{name}: neither a dump nor text; ignored")
    _read_unpacked(rest, head, name, reading)


def _is_binary(head: bytes) -> bool:
    return len(head) - len(head.translate(None, _NOT_TEXT)) > len(head) // _FEW


_NOT_TEXT = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))
_FEW = 50
"""A file with at most one control character in this many bytes counts as text."""


# ---------------------------------------------------------------------------------------------------------------------
# Dumps -> packed records: with the compiled reader if it is installed, else in Python.

Dump = bytes | io.BufferedIOBase
"""The content of a dump, or a stream to read it from."""

Admitted = tuple[Traces, tuple[SetAside, ...]]
_KEPT_MEMBERS = 256
"""Number of cached groups: the world is in every dump, and ranks of a node share a few more."""


class DumpReader:
    def __init__(self, tables: SharedTables, names: FileNames) -> None:
        self._tables = tables
        self._names = names
        self._native = NativePacker.if_installed()
        self._belonging = lru_cache(_KEPT_MEMBERS)(tables.belonging)
        # Reused for every dump; one byte larger than the limit. Pages that no dump has touched take no memory.
        self._room = np.empty(dump.MAX_BYTES + 1, np.uint8).data

    def read(self, path: str, dump: Dump) -> tuple[RankClaim, bytes]:
        """The dump's rank, and its record, which is empty if the rank is not known. Raises InputError."""
        data = dump if isinstance(dump, bytes) else self._room[: dump.readinto(self._room)]
        read = self._read_natively(path, data) if self._native else None
        return read or self._read_in_python(path, bytes(data))

    def _read_natively(self, path: str, data: bytes | memoryview) -> tuple[RankClaim, bytes] | None:
        """None: declined, use the Python reader."""
        assert self._native is not None  # checked by the caller
        claimable = self._native.decode(data)
        if claimable is None:
            return None
        self._tables.add_stream(self._native.new_tables())
        claim = claim_by_hints(self._hints(claimable), path, self._names)
        if claim.rank is None:
            return claim, b""
        record = self._native.summarise(claim.rank)
        self._tables.add_stream(self._native.new_tables())
        return None if record is None else (claim, record)

    def _hints(self, claimable: Claimable) -> RankHints:
        declared = tuple(self._belonging(key) for key in claimable.declared)
        return RankHints(claimable.stated, claimable.in_messages, declared)

    def _read_in_python(self, path: str, data: bytes) -> tuple[RankClaim, bytes]:
        columns = dump.decode(data, path)
        for group in columns.header.groups:
            if group.ranks:  # the compiled reader adds them all, to find the rank: tables must be the same
                self._tables.members_key(group.ranks)
        if columns.header.unnamed:
            self._tables.members_key(columns.header.unnamed)
        claim = claim_rank(columns, path, self._names)
        if columns.header.behind:
            behind = f"has {columns.header.behind} bytes after its end, which were not read; if they are another dump, split the file"
            claim = structs.replace(claim, problem="; ".join(filter(None, (claim.problem, behind))))
        if claim.rank is None:
            return claim, b""
        return claim, summarise(columns, claim.rank, self._tables)


# ---------------------------------------------------------------------------------------------------------------------
# What was read so far, file by file, before it is combined. A summary file holds the same.


class Reading(Struct):
    tables: SharedTables = field(default_factory=SharedTables)
    records: RecordStore = field(default_factory=RecordStore)
    texts: "list[TextReading]" = field(default_factory=list["TextReading"])
    empty: list[str] = field(default_factory=list[str])
    """Text files without content."""
    problems: list[Problem] = field(default_factory=list[Problem])
    internal: list[InternalProblem] = field(default_factory=list[InternalProblem])
    names: FileNames = field(default_factory=FileNames)
    """The names of all files that are read together."""
    after_part: Callable[[], None] = lambda: None
    """Called after each member of an archive."""
    _dumps: DumpReader | None = None

    def add_dump(self, path: str, dump: Dump) -> None:
        if self._dumps is None:
            self._dumps = DumpReader(self.tables, self.names)
        claim, packed = self._dumps.read(path, dump)
        if claim.problem:
            self.problems.append(Problem(path, claim.problem))
        if claim.rank is None:
            return
        self.records.append(TraceRecord(claim.rank, path, packed))
        if cut := HEAD.read(packed).cut:
            self.problems.append(Problem(path, self.tables.text(cut)))

    def like_this(self, records: RecordStore, after_part: Callable[[], None]) -> "Reading":
        """An empty one with the same tables and names, for a child that sends what it reads."""
        return Reading(tables=self.tables, names=self.names, records=records, after_part=after_part)

    @property
    def says_anything(self) -> bool:
        return bool(self.records) or any(text.says_anything for text in self.texts)

    def require(self, paths: Sequence[str]) -> None:
        """Raises UnreadableInput if nothing could be used."""
        if not self.says_anything:
            reasons = "; ".join(f"{p.file}: {p.text}" for p in self.problems[:3]) or self._why_nothing()
            raise UnreadableInput(f"nothing to diagnose in {', '.join(paths)}: {reasons}")

    def _why_nothing(self) -> str:
        silent = [text.file for text in self.texts]
        if silent:
            return f"{silent[0]}{_more(silent)} says nothing about ranks, calls or failures; give dumps, logs or stacks"
        if self.empty:
            return f"{self.empty[0]}{_more(self.empty)} is empty; copy it again, or give other files of the job"
        return "no files found"

    def capture(self, choice: Choice = ADMIT_BY_PROOF) -> Capture:
        """Everything combined."""
        self._dumps = None  # frees its caches
        parts = Parts(self.internal)
        tables = self.tables.build()
        traces, set_aside = self._admit(tables, choice, parts)
        capture = Capture(traces=traces, tables=tables, problems=tuple(self.problems), set_aside=set_aside)
        if self.texts:
            from forkpoint.evidence.text_files import with_texts  # noqa: PLC0415 - their readers are slow to import

            bare = capture
            capture = parts.run("what texts say", lambda: with_texts(bare, self.texts, self.empty, choice), bare)
        return replace(capture, internal=tuple(parts.broken))

    def _admit(self, tables: Tables, choice: Choice, parts: Parts) -> Admitted:
        every = Traces(self.records, self.tables)
        admitted = parts.run("the choice of dumps", lambda: admit(every, tables, choice), None)
        if admitted is not None:
            return admitted
        places = np.arange(len(every))
        found = work_without_some(
            len(every), lambda some: admit(every.take(np.delete(places, list(some))), tables, choice)
        )
        if found is None:
            return every[:0], ()
        (traces, set_aside), left_out = found
        return traces, (*set_aside, *(SetAside(every[at].file, every[at].rank, BROKE_ON_IT) for at in left_out))


def _more(files: Sequence[str]) -> str:
    return f" (and {len(files) - 1} more)" if len(files) > 1 else ""
