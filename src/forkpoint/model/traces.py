"""The traces of a job, and group members that other evidence declares."""

from abc import abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar, overload

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from forkpoint.model.layout import NO_KEY
from forkpoint.model.op import Ints
from forkpoint.model.records import GROUP, HEAD, Head, RecordStore, TraceRecord, parts_of
from forkpoint.model.tables import SharedTables
from forkpoint.model.trace import RankTrace


class Declared(Struct, frozen=True):
    """Group members for dumps that do not state them, as keys into the tables."""

    world: int
    """NO_KEY: not declared."""
    groups: Mapping[int, tuple[tuple[frozenset[int], int], ...]]
    """(ranks, key of the members), by the key of the group's name."""

    def members(self, name: int, rank: int) -> int:
        """The members of the rank's group of this name; NO_KEY if that is ambiguous: groups may share a name."""
        found = {key for ranks, key in self.groups.get(name, ()) if rank in ranks}
        return found.pop() if len(found) == 1 else NO_KEY


class Traces(Sequence[RankTrace]):
    """A selection of the records in a store, in any order."""

    def __init__(
        self,
        store: RecordStore,
        tables: SharedTables,
        chosen: Ints | None = None,
        declared: tuple[Declared, ...] = (),
    ) -> None:
        self.tables = tables
        self._store = store
        self._chosen = np.arange(len(store)) if chosen is None else chosen
        self._declared = declared

    @classmethod
    def of(cls, records: Iterable[TraceRecord], tables: SharedTables) -> "Traces":
        store = RecordStore()
        for record in records:
            store.append(record)
        return cls(store, tables)

    @cached_property
    def ranks(self) -> Ints:
        return np.frombuffer(self._store.ranks.tobytes(), np.int64)[self._chosen]

    @cached_property
    def heads(self) -> NDArray[Any]:
        """The `Head` of each record, as columns."""
        heads = np.frombuffer(b"".join(self._store.heads), HEAD.dtype)[self._chosen]  # a copy
        for declared in self._declared:
            heads["world"][heads["world"] == NO_KEY] = declared.world
        return heads

    def take(self, chosen: Ints | NDArray[np.bool_]) -> "Traces":
        """Only these."""
        return Traces(self._store, self.tables, self._chosen[chosen], self._declared)

    def declare(self, world: tuple[int, ...] | None, groups: Iterable[tuple[str, tuple[int, ...]]]) -> "Traces":
        """The same traces, with these members where a dump states none. `groups`: names and members."""
        tables = self.tables
        by_name: dict[int, tuple[tuple[frozenset[int], int], ...]] = {}
        for name, ranks in groups:
            key = tables.text_key(name)
            by_name[key] = (*by_name.get(key, ()), (frozenset(ranks), tables.members_key(ranks)))
        declared = Declared(tables.members_key(world) if world else NO_KEY, by_name)
        return Traces(self._store, tables, self._chosen, (*self._declared, declared))

    def __len__(self) -> int:
        return len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> RankTrace: ...
    @overload
    def __getitem__(self, index: slice) -> "Traces": ...
    def __getitem__(self, index: int | slice) -> "RankTrace | Traces":
        if isinstance(index, slice):
            return Traces(self._store, self.tables, self._chosen[index], self._declared)
        return self._trace(int(self._chosen[index]))

    def __iter__(self) -> Iterator[RankTrace]:
        return map(self._trace, self._chosen.tolist())

    def _trace(self, at: int) -> RankTrace:
        return RankTrace(self._store.ranks[at], self._head(at), partial(self._record, at), self.tables)

    def _head(self, at: int) -> Head:
        head = HEAD.read(self._store.heads[at])
        for declared in self._declared:
            head = head if head.world else head._replace(world=declared.world)
        return head

    def _record(self, at: int) -> TraceRecord:
        record = self._store[at]
        return replace(record, data=self._with_declared(record, self._head(at))) if self._declared else record

    def _with_declared(self, record: TraceRecord, head: Head) -> bytes:
        data = bytearray(record.data)
        HEAD.pack_into(data, 0, head)
        for at, group in parts_of(record.data).groups:
            if not group.members:
                keys = (declared.members(group.name, record.rank) for declared in self._declared)
                members = next(filter(None, keys), NO_KEY)
                GROUP.pack_into(data, at - GROUP.size, group._replace(members=members))
        return bytes(data)


Value = TypeVar("Value")


class ByRank(Mapping[int, Value]):
    """Values by rank, created on demand. Only the ranks are kept: a sorted array, or the part of one that several share."""

    __slots__ = ("_begin", "_end", "_ranks")

    def __init__(self, ranks: Sequence[int], begin: int = 0, end: int | None = None) -> None:
        self._ranks = ranks
        self._begin = begin
        self._end = len(ranks) if end is None else end

    @abstractmethod
    def value(self, at: int) -> Value:
        """Of the rank at this place in the array."""

    def place(self, rank: object) -> int | None:
        at = bisect_left(self._ranks, rank, self._begin, self._end) if isinstance(rank, int) else self._end
        return at if at < self._end and self._ranks[at] == rank else None

    def __getitem__(self, rank: int) -> Value:
        at = self.place(rank)
        if at is None:
            raise KeyError(rank)
        return self.value(at)

    def __contains__(self, rank: object) -> bool:
        return self.place(rank) is not None

    def __iter__(self) -> Iterator[int]:
        whole = len(self) == len(self._ranks)
        return iter(self._ranks if whole else self._ranks[self._begin : self._end])

    def __len__(self) -> int:
        return self._end - self._begin


class TracesByRank(ByRank[RankTrace]):
    """One trace per rank, in the order of ranks."""

    def __init__(self, traces: Traces) -> None:
        in_order = not (np.diff(traces.ranks) < 0).any()
        self.in_order = traces if in_order else traces.take(np.argsort(traces.ranks, kind="stable"))
        super().__init__(array("q", self.in_order.ranks.tobytes()))

    def value(self, at: int) -> RankTrace:
        return self.in_order[at]
