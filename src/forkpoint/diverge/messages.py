"""Messages between two collectives: the two ends of a channel must have issued the same number of them.

A message records how many collectives its group had done (its epoch). Epochs are absolute, so this works wherever a ring
buffer begins.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from forkpoint.diverge.slots import sequence
from forkpoint.model.op import Ints
from forkpoint.model.timeline import Channel, GroupTimeline, Timeline
from forkpoint.model.trace import Track


class MessageShift(Struct, frozen=True):
    """One end of a channel issued fewer or more messages in an epoch than its peers did."""

    channel: Channel
    rank: int | None
    """The end that differs from the rest of the group; None if it cannot be determined."""
    by: int
    """Positive: the sender issued this many fewer."""
    number: int | None
    """The first message without a counterpart; None if messages cannot be numbered from the first one."""


class _Epoch(Struct, frozen=True):
    """How many messages the two ends issued in an epoch that both dumps hold completely; for all channels of one kind."""

    epoch: int
    sent: int
    received: int
    channels: Sequence[int]
    """Indexes into `Timeline.channels`."""


_Unequal = list[tuple[Channel, _Epoch]]
"""Channels, each with an epoch in which its ends issued different numbers of messages."""


def find_message_shift(timeline: Timeline) -> MessageShift | None:
    """From the earliest epoch in which the ends of a channel differ although the end with fewer messages has moved on."""
    epochs = [e for channel, alike in timeline.channels.by_kind() for e in _epochs(channel, alike, timeline)]
    unequal = _unequal(epochs, timeline)
    if not unequal:
        return None
    epoch = min(e.epoch for _, e in unequal)
    first = [(channel, e) for channel, e in unequal if e.epoch == epoch]
    equal = [e for e in epochs if e.epoch == epoch and e.sent == e.received]
    usual = _usual_count(first, equal, timeline)
    channel, chosen = next((one for one in first if _is_waited_on(one[0], timeline)), first[0])
    number = _number(channel, chosen, timeline)
    return MessageShift(channel, _odd_end(first, usual), chosen.received - chosen.sent, number)


def _epochs(channel: Channel, alike: Sequence[int], timeline: Timeline) -> list[_Epoch]:
    if channel.sent is None or channel.received is None:
        return []
    sent, received = (sequence(t, timeline.tables).epoch for t in (channel.sent, channel.received))
    return [
        _Epoch(epoch, int((sent == epoch).sum()), int((received == epoch).sum()), alike)
        for epoch in np.union1d(sent, received).tolist()
        if _holds(channel.sent, sent, epoch) and _holds(channel.received, received, epoch)
    ]


def _unequal(epochs: list[_Epoch], timeline: Timeline) -> _Unequal:
    """Unequal epochs that the end with fewer messages has finished, sorted by channel."""
    groups = {g.group: g for g in timeline.groups}
    found: list[tuple[int, Channel, _Epoch]] = []
    for e in epochs:
        for index in e.channels if e.sent != e.received else ():
            channel = timeline.channels[index]
            fewer = channel.source if e.sent < e.received else channel.destination
            if not _is_blind(channel, timeline) and _reached(groups.get(channel.group), fewer) > e.epoch:
                found.append((index, channel, e))
    return [(channel, e) for _, channel, e in sorted(found, key=lambda item: (item[0], item[2].epoch))]


def _is_blind(channel: Channel, timeline: Timeline) -> bool:
    ends = (channel.source, channel.destination)
    return any(end in timeline.blind or timeline.traces[end].is_partial for end in ends)


def _holds(track: Track, epochs: Ints, epoch: int) -> bool:
    """The dump holds the whole epoch. Of the oldest epoch in a ring buffer, messages may be lost."""
    return track.from_start or epoch > int(epochs[0])


def _reached(group: GroupTimeline | None, rank: int) -> int:
    """The last collective of the channel's group that the rank issued."""
    track = group.track(rank) if group else None
    return track.last_seq if track else 0


def _usual_count(unequal: _Unequal, equal: list[_Epoch], timeline: Timeline) -> int | None:
    """The number of messages that most ends issued in the epoch; None if there is no most common number."""
    ends = Counter(n for _, e in unequal for n in (e.sent, e.received))
    for e in equal:
        ends[e.sent] += 2 * sum(not _is_blind(timeline.channels[index], timeline) for index in e.channels)
    (value, times), *rest = ends.most_common()
    return value if not rest or times > rest[0][1] else None


def _odd_end(unequal: _Unequal, usual: int | None) -> int | None:
    """The one rank that issued another number than usual; None if there are several."""
    if usual is None:
        return None
    odd = {channel.source for channel, e in unequal if e.sent != usual}
    odd |= {channel.destination for channel, e in unequal if e.received != usual}
    return odd.pop() if len(odd) == 1 else None


def _is_waited_on(channel: Channel, timeline: Timeline) -> bool:
    ends = (channel.source, channel.destination)
    return any(
        p and p[0].group == channel.group and p[0].channel == ends for r in ends if (p := timeline.positions.get(r))
    )


def _number(channel: Channel, e: _Epoch, timeline: Timeline) -> int | None:
    if not channel.counted or channel.sent is None:
        return None
    before = int((sequence(channel.sent, timeline.tables).epoch < e.epoch).sum())
    return before + min(e.sent, e.received) + 1
