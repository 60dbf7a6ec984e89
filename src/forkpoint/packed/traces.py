"""The traces of a job: packed, and unpacked one at a time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

from forkpoint.model.trace import ReadTrace
from forkpoint.packed.records import pack
from forkpoint.packed.tables import SharedTables
from forkpoint.packed.trace import PackedRecord, PackedTrace


class PackedTraces(Sequence[PackedTrace]):
    """In the order of their ranks. What is taken out of it lives as long as it is looked at."""

    def __init__(self, records: Iterable[PackedRecord], tables: SharedTables) -> None:
        self.records = tuple(records)
        self.tables = tables

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, index: int) -> PackedTrace: ...
    @overload
    def __getitem__(self, index: slice) -> "PackedTraces": ...
    def __getitem__(self, index: int | slice) -> "PackedTrace | PackedTraces":
        if isinstance(index, slice):
            return PackedTraces(self.records[index], self.tables)
        return PackedTrace(self.records[index], self.tables)

    def __iter__(self) -> Iterator[PackedTrace]:
        return (PackedTrace(record, self.tables) for record in self.records)


def pack_traces(traces: Iterable[ReadTrace], tables: SharedTables) -> PackedTraces:
    return PackedTraces((PackedRecord(t.rank, t.file, pack(t, tables)) for t in traces), tables)


class TracesByRank(Mapping[int, PackedTrace]):
    """One trace per rank."""

    def __init__(self, traces: PackedTraces) -> None:
        self._tables = traces.tables
        self._records = {record.rank: record for record in traces.records}

    def __getitem__(self, rank: int) -> PackedTrace:
        return PackedTrace(self._records[rank], self._tables)

    def __contains__(self, rank: object) -> bool:
        return rank in self._records

    def __iter__(self) -> Iterator[int]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)
