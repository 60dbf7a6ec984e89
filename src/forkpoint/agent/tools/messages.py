"""Messages between two ranks: what one end sent and the other received."""

from collections.abc import Iterator, Sequence

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import answer, fact, names
from forkpoint.agent.tools.calls import tell_slot
from forkpoint.agent.tools.groups import name_group
from forkpoint.agent.wire import Wire
from forkpoint.model.timeline import Channel
from forkpoint.model.trace import Track

_MAX_AROUND = 10


class Arguments(Wire):
    source: int
    """The rank that sends."""
    destination: int
    """The rank that receives."""
    number: int | None
    """Of the message on its way from one to the other, from 1; null: the last ones."""
    around: int | None
    """So many before and after; null: 3."""


def messages(case: Case, asked: Arguments) -> Sequence[Fact]:
    channels = case.incident.timeline.channels
    if not channels:
        raise Refused("no messages between two ranks were recorded in this case")
    found = [c for c in channels if (c.source, c.destination) == (asked.source, asked.destination)]
    if not found:
        ways = sorted({(c.source, c.destination) for c in channels})
        raise Refused(f"no messages were recorded on this way; there are {names([f'{s}->{d}' for s, d in ways])}")
    around = min(max(3 if asked.around is None else asked.around, 0), _MAX_AROUND)
    shown = (f for channel in found for f in _facts(case, channel, asked.number, around))
    facts = answer(shown, "ask for fewer messages around")
    if not facts:
        last = max(track.last_seq for channel in found for track in _ends(channel))
        raise Refused(f"no such message is recorded; the last is {last}")
    return facts


def _facts(case: Case, channel: Channel, number: int | None, around: int) -> Iterator[Fact]:
    tracks = _ends(channel)
    centre = max(track.last_seq for track in tracks) if number is None else number
    asked = range(max(1, centre - around), centre + around + 1)
    held = [at for at in asked if any(track.first_seq <= at <= track.last_seq for track in tracks)]
    group = name_group(channel.group, case.incident.timeline)
    way = f"{channel.source}->{channel.destination}"
    if held and not channel.counted:
        says = "the first messages are not recorded on both ends: equal numbers need not be the same message"
        yield fact(case, f"{group} messages {way}", says)
    for at in held:
        sent, received = _tell(case, channel.sent, at), _tell(case, channel.received, at)
        says = f"rank {channel.source} {sent}; rank {channel.destination} {received}"
        yield fact(case, f"{group} message {at} of {way}", says)


def _ends(channel: Channel) -> list[Track]:
    return [track for track in (channel.sent, channel.received) if track]


def _tell(case: Case, track: Track | None, number: int) -> str:
    if track is None:
        return "recorded none"
    if number > track.last_seq:
        return f"has not come to it (its last is {track.last_seq})"
    return tell_slot(track, number, case.incident.timeline.tables) or "no longer holds it"


TOOL = Tool(
    name="messages",
    description="Messages from one rank to another (send and recv): what each end recorded of the n-th, and how far each end came.",
    arguments=Arguments,
    answer=messages,
)
