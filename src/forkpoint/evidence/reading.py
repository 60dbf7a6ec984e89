"""What was read so far, file by file, before it is combined: dumps as packed records, texts, problems."""

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field, structs

from forkpoint.errors import UnreadableInput
from forkpoint.evidence.file_names import FileNames, RankClaim, RankHints, claim_by_hints, claim_rank
from forkpoint.model.capture import BROKE_ON_IT, Capture, InternalProblem, Problem, SetAside
from forkpoint.model.entries import Tables
from forkpoint.model.records import HEAD, RecordStore, TraceRecord
from forkpoint.model.tables import SharedTables
from forkpoint.model.traces import Traces
from forkpoint.parts import Parts, work_without_some
from forkpoint.traces import dump
from forkpoint.traces.admission import ADMIT_BY_PROOF, Choice, admit
from forkpoint.traces.native import Claimable, NativePacker
from forkpoint.traces.summary import summarise

if TYPE_CHECKING:
    from forkpoint.evidence.owners import TextReading

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
