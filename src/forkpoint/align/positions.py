"""Where ranks stand: worked out for a rank when it is asked for."""

from collections.abc import Iterator, Mapping

from forkpoint.align.channels import ChannelKey
from forkpoint.align.groups import Key
from forkpoint.model.timeline import Channel, GroupTimeline, Position
from forkpoint.model.trace import RankTrace


class Positions(Mapping[int, tuple[Position, ...]]):
    """Of every rank with a whole dump, in the order of issue."""

    def __init__(
        self,
        traces: Mapping[int, RankTrace],
        blind: frozenset[int],
        groups: Mapping[Key, GroupTimeline],
        channels: Mapping[ChannelKey, Channel],
    ) -> None:
        self._traces = traces
        self._blind = blind
        self._groups = groups
        self._channels = channels

    def __getitem__(self, rank: int) -> tuple[Position, ...]:
        if rank in self._blind:
            raise KeyError(rank)
        trace = self._traces[rank]
        found: list[Position] = []
        for group in trace.groups:
            timeline, track = self._groups[group.key], group.collectives
            if track and rank in timeline.traces and (op := track.first_active):
                found.append(Position(op, timeline.group, None))
        for end in trace.channels:
            if op := end.messages.first_active:
                channel = self._channels[end.group.key, end.source, end.destination]
                found.append(Position(op, channel.group, (end.source, end.destination)))
        return tuple(sorted(found, key=lambda position: position.op.record_id))

    def __contains__(self, rank: object) -> bool:
        return rank in self._traces and rank not in self._blind

    def __iter__(self) -> Iterator[int]:
        return (rank for rank in self._traces if rank not in self._blind)

    def __len__(self) -> int:
        return len(self._traces) - len(self._blind & self._traces.keys())
