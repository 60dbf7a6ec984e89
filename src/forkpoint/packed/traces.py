"""The traces of a job: packed, and unpacked one at a time."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from forkpoint.model.trace import Ints, ReadTrace
from forkpoint.packed.records import HEAD_FIELDS, pack
from forkpoint.packed.store import RecordStore
from forkpoint.packed.tables import SharedTables
from forkpoint.packed.trace import PackedRecord, PackedTrace

_HEADS = np.dtype(list(HEAD_FIELDS))


class PackedTraces(Sequence[PackedTrace]):
    """Some of the records in a store, in an order of their own. What is taken out lives as long as it is looked at."""

    def __init__(self, store: RecordStore, tables: SharedTables, chosen: Ints | None = None) -> None:
        self.tables = tables
        self._store = store
        self._chosen = np.arange(len(store)) if chosen is None else chosen

    @cached_property
    def ranks(self) -> Ints:
        return np.frombuffer(self._store.ranks.tobytes(), np.int64)[self._chosen]

    @cached_property
    def heads(self) -> NDArray[Any]:
        """What `records.HEAD` says of each, as columns."""
        return np.frombuffer(b"".join(self._store.heads), _HEADS)[self._chosen]

    def take(self, chosen: Ints | NDArray[np.bool_]) -> "PackedTraces":
        """Only these."""
        return PackedTraces(self._store, self.tables, self._chosen[chosen])

    def __len__(self) -> int:
        return len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> PackedTrace: ...
    @overload
    def __getitem__(self, index: slice) -> "PackedTraces": ...
    def __getitem__(self, index: int | slice) -> "PackedTrace | PackedTraces":
        if isinstance(index, slice):
            return PackedTraces(self._store, self.tables, self._chosen[index])
        return PackedTrace(self._store[int(self._chosen[index])], self.tables)

    def __iter__(self) -> Iterator[PackedTrace]:
        return (PackedTrace(self._store[at], self.tables) for at in self._chosen.tolist())


def pack_traces(traces: Iterable[ReadTrace], tables: SharedTables) -> PackedTraces:
    store = RecordStore()
    for trace in traces:
        store.append(PackedRecord(trace.rank, trace.file, pack(trace, tables)))
    return PackedTraces(store, tables)


def place_of(rank: object, ranks: Sequence[int], begin: int = 0, end: int | None = None) -> int | None:
    """Where a rank stands among others in order, or among those from `begin` to `end`."""
    end = len(ranks) if end is None else end
    at = bisect_left(ranks, rank, begin, end) if isinstance(rank, int) else end
    return at if at < end and ranks[at] == rank else None


class TracesByRank(Mapping[int, PackedTrace]):
    """One trace per rank, in the order of ranks."""

    def __init__(self, traces: PackedTraces) -> None:
        in_order = not (np.diff(traces.ranks) < 0).any()
        self.in_order = traces if in_order else traces.take(np.argsort(traces.ranks, kind="stable"))
        self._ranks = array("q", self.in_order.ranks.tobytes())

    def __getitem__(self, rank: int) -> PackedTrace:
        at = place_of(rank, self._ranks)
        if at is None:
            raise KeyError(rank)
        return self.in_order[at]

    def __contains__(self, rank: object) -> bool:
        return place_of(rank, self._ranks) is not None

    def __iter__(self) -> Iterator[int]:
        return iter(self._ranks)

    def __len__(self) -> int:
        return len(self._ranks)
