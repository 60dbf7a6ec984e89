"""A packed trace as it was read, for those who change one."""

from dataclasses import fields

from forkpoint.model.trace import ChannelTrace, GroupTrace, ReadGroup, ReadTrace, ReadTrack, Track
from forkpoint.packed.trace import PackedTrace

_MADE_HERE = frozenset({"groups", "channels"})


def unpack(trace: PackedTrace) -> ReadTrace:
    groups = tuple(_group(group) for group in trace.groups)
    channels = tuple(
        ChannelTrace(groups[index], end.source, end.destination, _track(end.messages))
        for index, end in zip(trace.channel_groups(), trace.channels, strict=True)
    )
    rest = {f.name: getattr(trace, f.name) for f in fields(ReadTrace) if f.name not in _MADE_HERE}
    return ReadTrace(**rest, groups=groups, channels=channels)


def _group(group: GroupTrace) -> ReadGroup:
    own = {f.name: getattr(group, f.name) for f in fields(ReadGroup) if f.name != "collectives"}
    return ReadGroup(**own, collectives=_track(group.collectives) if group.collectives else None)


def _track(track: Track) -> ReadTrack:
    return ReadTrack(**{f.name: getattr(track, f.name) for f in fields(ReadTrack)})
