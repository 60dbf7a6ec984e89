"""One group's traces over its members, taken out of the ranks' traces when they are asked for."""

from array import array
from collections.abc import Iterator, Sequence

import numpy as np

from forkpoint.model.timeline import GroupTraces
from forkpoint.model.trace import GroupTrace, Ints, ReadGroup
from forkpoint.packed.rows import NO_KIND, GroupName, Rows
from forkpoint.packed.trace import PackedGroup
from forkpoint.packed.traces import TracesByRank, place_of

NOT_HELD = -1


class GroupRows:
    """The rows of all groups, and the traces they are of."""

    def __init__(self, rows: Rows, traces: TracesByRank) -> None:
        self.ranks = array("q", traces.in_order.ranks[rows.groups.trace].tobytes())
        self._begins = np.searchsorted(rows.groups.group, np.arange(len(rows.names) + 1)).tolist()
        self._every_row = range(len(self.ranks))
        self._rows = rows
        self.traces = traces

    def held(self, number: int) -> "HeldGroups":
        """The traces that hold the group, members or not."""
        begin, end = self._begins[number], self._begins[number + 1]
        return HeldGroups(self, self._rows.names[number], self.ranks, self._every_row, begin, end)

    def group(self, row: int) -> PackedGroup:
        table = self._rows.groups
        kind, trace = int(table.kind[row]), self.traces.in_order[int(table.trace[row])]
        return PackedGroup(trace, int(table.place[row]), None if kind == NO_KIND else self._rows.kinds[kind])

    def completed(self, ranks: list[int], rows: Ints) -> Iterator[tuple[int, int, int]]:
        return zip(ranks, self._rows.groups.kind[rows].tolist(), self._rows.groups.done_ns[rows].tolist(), strict=True)


class HeldGroups(GroupTraces):
    """By rank. A few numbers for a group whose members all hold it, since there are groups of 100,000."""

    __slots__ = ("_begin", "_end", "_name", "_ranks", "_rows", "_table")

    def __init__(
        self, table: GroupRows, name: GroupName, ranks: Sequence[int], rows: Sequence[int], begin: int, end: int
    ) -> None:
        """Of `ranks` and their `rows`, those from `begin` to `end`. A rank may not hold it (NOT_HELD)."""
        self._table = table
        self._name = name
        self._ranks = ranks
        self._rows = rows
        self._begin = begin
        self._end = end

    def among(self, ranks: list[int]) -> "HeldGroups":
        """Those of these ranks, whether they hold the group or not."""
        if ranks == list(self):
            return self
        rows = array("q", (NOT_HELD if (row := self.row(rank)) is None else row for rank in ranks))
        return HeldGroups(self._table, self._name, array("q", ranks), rows, 0, len(ranks))

    @property
    def rows(self) -> Sequence[int]:
        """Into the rows of all groups."""
        return self._rows[self._begin : self._end]

    def row(self, rank: object) -> int | None:
        at = place_of(rank, self._ranks, self._begin, self._end)
        return None if at is None else self._rows[at]

    def is_from_start(self, rank: int) -> bool:
        return self._table.traces[rank].from_start

    def is_partial(self, rank: int) -> bool:
        return self._table.traces[rank].is_partial

    def completed(self) -> Iterator[tuple[int, int, int]]:
        rows = np.asarray(self.rows)
        held = rows != NOT_HELD
        ranks = np.asarray(self._ranks[self._begin : self._end])[held].tolist()
        return self._table.completed(ranks, rows[held])

    def __getitem__(self, rank: int) -> GroupTrace:
        row = self.row(rank)
        if row is None:
            raise KeyError(rank)
        if row == NOT_HELD:
            return ReadGroup(self._name.name, self._name.desc, self._name.members)
        return self._table.group(row)

    def __contains__(self, rank: object) -> bool:
        return self.row(rank) is not None

    def __iter__(self) -> Iterator[int]:
        return iter(self._ranks[self._begin : self._end])

    def __len__(self) -> int:
        return self._end - self._begin
