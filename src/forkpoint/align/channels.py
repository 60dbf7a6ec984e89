"""Messages, aligned per (group, source, destination)."""

from forkpoint.model.timeline import Channel
from forkpoint.model.trace import ChannelTrace, RankTrace
from forkpoint.model.world import ProcessGroup

_Key = tuple[str, tuple[int, ...] | None, int, int]


def align_channels(traces: dict[int, RankTrace], world: tuple[int, ...]) -> tuple[Channel, ...]:
    ends: dict[_Key, dict[int, ChannelTrace]] = {}
    for rank in sorted(traces):
        for end in traces[rank].channels:
            ends.setdefault((end.name, end.members, end.source, end.destination), {})[rank] = end
    channels: list[Channel] = []
    for (name, members, source, destination), held in ends.items():
        desc = min(e.desc for e in held.values())
        group = ProcessGroup(name, desc, members or world, declared=members is not None)
        sent, received = held.get(source), held.get(destination)
        channels.append(
            Channel(
                group, source, destination, sent.messages if sent else None, received.messages if received else None
            )
        )
    return tuple(sorted(channels, key=lambda c: (c.group, c.source, c.destination)))
