"""Messages, aligned per (group, source, destination)."""

from collections.abc import Mapping

from forkpoint.align.groups import Key
from forkpoint.model.timeline import Channel
from forkpoint.model.trace import ChannelTrace, RankTrace
from forkpoint.model.world import ProcessGroup

ChannelKey = tuple[Key, int, int]
"""Of its group, and its ends."""


def align_channels(traces: Mapping[int, RankTrace], world: tuple[int, ...]) -> dict[ChannelKey, Channel]:
    ends: dict[ChannelKey, dict[int, ChannelTrace]] = {}
    for rank in sorted(traces):
        for end in traces[rank].channels:
            ends.setdefault((end.group.key, end.source, end.destination), {})[rank] = end
    of_messages: dict[tuple[Key, str], ProcessGroup] = {}
    channels: dict[ChannelKey, Channel] = {}
    for (key, source, destination), held in ends.items():
        desc = min(end.group.desc for end in held.values())
        if (key, desc) not in of_messages:
            of_messages[key, desc] = _group(next(iter(held.values())), desc, world)
        sent, received = held.get(source), held.get(destination)
        channels[key, source, destination] = Channel(
            of_messages[key, desc],
            source,
            destination,
            sent.messages if sent else None,
            received.messages if received else None,
        )
    return dict(sorted(channels.items(), key=lambda item: (item[1].group, item[1].source, item[1].destination)))


def _group(end: ChannelTrace, desc: str, world: tuple[int, ...]) -> ProcessGroup:
    members = end.group.members
    return ProcessGroup(end.group.name, desc, members or world, declared=members is not None)
