"""Where ranks stand: worked out for a rank when it is asked for."""

from collections.abc import Iterator, Mapping

from forkpoint.align.channels import AlignedChannels
from forkpoint.model.timeline import GroupTimeline, Position
from forkpoint.packed.rows import Rows
from forkpoint.packed.traces import TracesByRank


class Positions(Mapping[int, tuple[Position, ...]]):
    """Of every rank with a whole dump, in the order of issue."""

    def __init__(
        self,
        traces: TracesByRank,
        blind: frozenset[int],
        rows: Rows,
        groups: tuple[GroupTimeline, ...],
        channels: AlignedChannels,
    ) -> None:
        self._traces = traces
        self._blind = blind
        self._numbers = rows.numbers
        self._groups = groups
        self._channels = channels

    def __getitem__(self, rank: int) -> tuple[Position, ...]:
        if rank in self._blind:
            raise KeyError(rank)
        trace = self._traces[rank]
        found: list[Position] = []
        numbers: list[int] = []
        for group in trace.groups:
            numbers.append(self._numbers[group.key])
            timeline, track = self._groups[numbers[-1]], group.collectives
            if track and rank in timeline.traces and (op := track.first_active):
                found.append(Position(op, timeline.group, None))
        for index, end in zip(trace.channel_groups(), trace.channels, strict=True):
            if op := end.messages.first_active:
                found.append(Position(op, self._channels.groups[numbers[index]], (end.source, end.destination)))
        return tuple(sorted(found, key=lambda position: position.op.record_id))

    def __contains__(self, rank: object) -> bool:
        return rank in self._traces and rank not in self._blind

    def __iter__(self) -> Iterator[int]:
        return (rank for rank in self._traces if rank not in self._blind)

    def __len__(self) -> int:
        return len(self._traces) - len(self._blind & self._traces.keys())
