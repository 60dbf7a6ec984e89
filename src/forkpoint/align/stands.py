"""In which op each rank stands, over all its groups and channels, without making the ops."""

from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from forkpoint.align.channels import AlignedChannels
from forkpoint.align.held import NOT_HELD, HeldGroups
from forkpoint.model.timeline import GroupTimeline, Stand, Stands
from forkpoint.model.trace import Ints
from forkpoint.packed.layout import NOTHING
from forkpoint.packed.rows import Rows
from forkpoint.packed.traces import PackedTraces, place_of


class AlignedStands(Stands):
    """Kept as one row per rank: that of its group or channel whose pending op was issued first."""

    def __init__(
        self,
        rows: Rows,
        traces: PackedTraces,
        groups: tuple[GroupTimeline, ...],
        channels: AlignedChannels,
        blind: frozenset[int],
    ) -> None:
        self._rows = rows
        self._groups = groups
        self._channels = channels
        pending = [shape.ops[shape.first_active] if shape.first_active is not None else None for shape in rows.kinds]
        self._seqs = [op.seq if op else 0 for op in pending]
        self._batches = [op.batch if op else 0 for op in pending]
        self._begins = np.searchsorted(rows.channels.trace, np.arange(len(traces) + 1))

        whole = ~np.isin(traces.ranks, list(blind))
        trace = np.concatenate([rows.groups.trace, rows.channels.trace])
        active = np.concatenate([rows.groups.active, rows.channels.active])
        counts = np.concatenate([_of_members(rows, groups), np.ones(len(rows.channels), np.bool_)])
        counts &= (active != NOTHING) & whole[trace]
        held = np.flatnonzero(counts)
        order = held[np.lexsort((active[held], trace[held]))]
        standing, first = np.unique(trace[order], return_index=True)
        self._first = order[first]
        """Rows of groups, then those of channels behind them; one per rank that stands somewhere."""
        self._ranks = array("q", traces.ranks[standing].tobytes())
        self._traces = standing
        self._elsewhere = counts[: len(rows.groups)]
        self._elsewhere[self._first[self._first < len(rows.groups)]] = False

    def held_elsewhere(self, group: GroupTimeline) -> frozenset[int]:
        assert isinstance(group.traces, HeldGroups)  # as align makes them
        return frozenset(
            rank
            for rank, row in zip(group.traces, group.traces.rows, strict=True)
            if row != NOT_HELD and self._elsewhere[row]
        )

    def __getitem__(self, rank: int) -> tuple[Stand, ...]:
        at = place_of(rank, self._ranks)
        if at is None:
            raise KeyError(rank)
        row = int(self._first[at]) - len(self._rows.groups)
        if row < 0:
            return (self._in_group(row + len(self._rows.groups)),)
        return self._batch(row, int(self._traces[at]))

    def _in_group(self, row: int) -> Stand:
        table = self._rows.groups
        kind, group = int(table.kind[row]), self._groups[int(table.group[row])].group
        own = int(table.active[row]), int(table.active_ns[row])
        return Stand(group, None, None, self._seqs[kind], self._batches[kind], *own)

    def _batch(self, first: int, trace: int) -> tuple[Stand, ...]:
        """All messages that the rank issued together with the first."""
        table = self._rows.channels
        mine = range(int(self._begins[trace]), int(self._begins[trace + 1]))
        batch = self._batches[int(table.kind[first])]
        together = [
            row
            for row in mine
            if table.active[row] != NOTHING
            and table.group[row] == table.group[first]
            and self._batches[int(table.kind[row])] == batch
        ]
        return tuple(sorted(map(self._on_channel, together), key=lambda stand: stand.record_id))

    def _on_channel(self, row: int) -> Stand:
        table = self._rows.channels
        kind, group = int(table.kind[row]), self._channels.groups[int(table.group[row])]
        ends = int(table.source[row]), int(table.destination[row])
        own = int(table.active[row]), int(table.active_ns[row])
        return Stand(group, ends, int(self._channels.of_row[row]), self._seqs[kind], self._batches[kind], *own)

    def __contains__(self, rank: object) -> bool:
        return place_of(rank, self._ranks) is not None

    def __iter__(self) -> Iterator[int]:
        return iter(self._ranks)

    def __len__(self) -> int:
        return len(self._ranks)


def _of_members(rows: Rows, groups: tuple[GroupTimeline, ...]) -> NDArray[np.bool_]:
    """Rows of ranks that their group knows."""
    known = np.zeros(len(rows.groups), np.bool_)
    for group in groups:
        assert isinstance(group.traces, HeldGroups)  # as align makes them
        held: Ints = np.asarray(group.traces.rows)
        known[held[held != NOT_HELD]] = True
    return known
