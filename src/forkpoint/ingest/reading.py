"""What has been read so far, file by file, before it is put together; a summary file holds the same."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forkpoint.errors import UnreadableInput
from forkpoint.ingest.admission import ADMIT_BY_PROOF, Choice, admit
from forkpoint.ingest.dump_reader import Dump, DumpReader
from forkpoint.ingest.naming import FileNames
from forkpoint.model.capture import Capture, Problem
from forkpoint.model.records import HEAD, Record, RecordStore
from forkpoint.model.tables import SharedTables
from forkpoint.model.traces import Traces

if TYPE_CHECKING:
    from forkpoint.ingest.text_files import TextReading


@dataclass(slots=True)
class Reading:
    tables: SharedTables = field(default_factory=SharedTables)
    records: RecordStore = field(default_factory=RecordStore)
    texts: "list[TextReading]" = field(default_factory=list["TextReading"])
    empty: list[str] = field(default_factory=list[str])
    """Text files without content."""
    problems: list[Problem] = field(default_factory=list[Problem])
    names: FileNames = field(default_factory=FileNames)
    """Of all files that are read together."""
    _dumps: DumpReader | None = None

    def add_dump(self, path: str, dump: Dump) -> None:
        if self._dumps is None:
            self._dumps = DumpReader(self.tables, self.names)
        claim, packed = self._dumps.read(path, dump)
        if claim.problem:
            self.problems.append(Problem(path, claim.problem))
        if claim.rank is None:
            return
        self.records.append(Record(claim.rank, path, packed))
        if cut := HEAD.read(packed).cut:
            self.problems.append(Problem(path, self.tables.text(cut)))

    @property
    def says_anything(self) -> bool:
        return bool(self.records) or any(text.says_anything for text in self.texts)

    def require(self, paths: Sequence[str]) -> None:
        """Raises UnreadableInput where nothing could be used."""
        if not self.says_anything:
            reasons = "; ".join(f"{p.file}: {p.text}" for p in self.problems[:3]) or "no files found"
            raise UnreadableInput(f"nothing to diagnose in {', '.join(paths)}: {reasons}")

    def capture(self, choice: Choice = ADMIT_BY_PROOF) -> Capture:
        """All of it, put together."""
        self._dumps = None  # it caches a lot per group, and is not needed any more
        tables = self.tables.build()
        traces, set_aside = admit(Traces(self.records, self.tables), tables, choice)
        capture = Capture(traces=traces, tables=tables, problems=tuple(self.problems), set_aside=set_aside)
        if not self.texts:
            return capture
        from forkpoint.ingest.text_files import with_texts  # noqa: PLC0415 - their readers are slow to import

        return with_texts(capture, self.texts, self.empty, choice)
