"""Messages, aligned per (group, source, destination)."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from forkpoint.model.timeline import Channel, Channels
from forkpoint.model.trace import Ints
from forkpoint.model.world import ProcessGroup
from forkpoint.packed.rows import Rows
from forkpoint.packed.trace import PackedTrack
from forkpoint.packed.traces import PackedTraces

_NO_ROW = -1


def align_channels(rows: Rows, traces: PackedTraces, world: tuple[int, ...]) -> "AlignedChannels":
    names = rows.names
    used = np.unique(rows.channels.group).tolist()
    groups = {
        n: ProcessGroup(names[n].name, names[n].desc, names[n].members or world, declared=names[n].members is not None)
        for n in used
    }
    return AlignedChannels(rows, traces, groups)


class AlignedChannels(Channels):
    """Kept as the rows of their two ends."""

    def __init__(self, rows: Rows, traces: PackedTraces, groups: dict[int, ProcessGroup]) -> None:
        self.groups = groups
        """By the number that rows give them."""
        self._rows = rows
        self._traces = traces
        table, ranks = rows.channels, traces.ranks[rows.channels.trace]
        place = np.zeros(len(rows.names), np.int64)
        place[sorted(groups, key=lambda number: groups[number])] = np.arange(len(groups))
        keys = (place[table.group], table.source, table.destination)
        order = np.lexsort(keys[::-1])
        new = np.ones(len(order), np.bool_)
        new[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
        first = order[new]
        self.of_row = np.empty(len(order), np.int64)
        """Of each row of `Rows.channels`: the index of its channel."""
        self.of_row[order] = np.cumsum(new) - 1
        self._group = table.group[first]
        self._source, self._destination = table.source[first], table.destination[first]
        self._sent = self._end(ranks == table.source)
        self._received = self._end(ranks == table.destination)

    def _end(self, is_end: NDArray[np.bool_]) -> Ints:
        """Per channel: the row of this end."""
        rows = np.full(len(self._group), _NO_ROW)
        rows[self.of_row[is_end]] = np.flatnonzero(is_end)
        return rows

    def find(self, group: ProcessGroup, ends: tuple[int, int]) -> Channel:
        found = np.flatnonzero((self._source == ends[0]) & (self._destination == ends[1]))
        return next(self[index] for index in found.tolist() if self.groups[int(self._group[index])] == group)

    def by_kind(self) -> Iterator[tuple[Channel, Sequence[int]]]:
        kinds = np.append(self._rows.channels.kind, np.int32(_NO_ROW))  # what _NO_ROW takes is the last
        pairs = np.stack([kinds[self._sent], kinds[self._received]], axis=1)
        _, which = np.unique(pairs, axis=0, return_inverse=True)
        order = np.argsort(which.ravel(), kind="stable")
        for alike in np.split(order, np.flatnonzero(np.diff(which.ravel()[order])) + 1):
            if alike.size:
                yield self[int(alike[0])], alike.tolist()

    def ends(self, index: int) -> tuple[int, int]:
        return int(self._source[index]), int(self._destination[index])

    def __len__(self) -> int:
        return len(self._group)

    @overload
    def __getitem__(self, index: int) -> Channel: ...
    @overload
    def __getitem__(self, index: slice) -> list[Channel]: ...
    def __getitem__(self, index: int | slice) -> Channel | list[Channel]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        at = range(len(self))[index]
        sent, received = int(self._sent[at]), int(self._received[at])
        return Channel(self.groups[int(self._group[at])], *self.ends(at), self._track(sent), self._track(received))

    def _track(self, row: int) -> PackedTrack | None:
        if row == _NO_ROW:
            return None
        table = self._rows.channels
        trace = self._traces[int(table.trace[row])]
        return PackedTrack(trace, self._rows.kinds[int(table.kind[row])], int(table.place[row]))
