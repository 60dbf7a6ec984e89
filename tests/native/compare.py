"""What the compiled reader and the Python one say about the same files."""

from dataclasses import dataclass, field

from forkpoint.errors import InputError
from forkpoint.evidence.file_names import hints_of
from forkpoint.model.tables import SharedTables, TableKind
from forkpoint.traces.columns import DumpColumns
from forkpoint.traces.dump import decode
from forkpoint.traces.native import Claimable, NativePacker
from forkpoint.traces.summary import summarise


def python_columns(data: bytes) -> DumpColumns | None:
    try:
        return decode(data, "file")
    except InputError:
        return None


def own_rank(columns: DumpColumns) -> int:
    """A rank that its content allows, so that it has channels."""
    hints = hints_of(columns)
    if hints.in_messages is not None:
        return hints.in_messages
    return min(hints.declared[0]) if hints.declared else 0


@dataclass(slots=True)
class Pair:
    """Both readers over many files, each with tables of its own."""

    packer: NativePacker
    python: SharedTables = field(default_factory=SharedTables)
    native: SharedTables = field(default_factory=SharedTables)

    def assert_same(self, data: bytes) -> bool:
        """Whether the compiled reader took the file. If so, all that it says is what the Python reader says."""
        claimable = self.packer.decode(data)
        if claimable is None:
            return False
        columns = python_columns(data)
        assert columns is not None, "the Python reader refuses it"
        rank = own_rank(columns)
        record = self.packer.summarise(rank)
        self.native.add_stream(self.packer.new_tables())
        self._assert_same_hints(claimable, columns)
        assert record == summarise(columns, rank, self.python)
        return True

    def _assert_same_hints(self, claimable: Claimable, columns: DumpColumns) -> None:
        hints = hints_of(columns)
        assert claimable.stated == hints.stated
        assert claimable.in_messages == hints.in_messages
        assert tuple(frozenset(self.native.members(key)) for key in claimable.declared) == hints.declared
        assert claimable.entries == len(columns.group)

    def assert_same_tables(self) -> None:
        """Of every kind but one: the compiled reader tells of all groups that a dump declares, to claim a rank."""
        for kind in set(TableKind) - {TableKind.MEMBERS}:
            assert self.native.entries(kind) == self.python.entries(kind)
        assert self.native.entries(TableKind.MEMBERS).items() >= self.python.entries(TableKind.MEMBERS).items()
