"""Messages between two ranks: channels with their counts, or one channel message by message."""

from collections.abc import Iterator, Sequence

from forkpoint.brief.calls import tell_slot
from forkpoint.brief.case import Case, Fact, QuestionRefused
from forkpoint.brief.naming import answer, fact, lines_around, name_group, names, plain_name
from forkpoint.model.timeline import Channel
from forkpoint.model.trace import Track

_MAX_AROUND = 10


_NAMED = 6


def pair_channels(case: Case) -> Iterator[Fact]:
    """Unmatched channels first; channels with the same counts share a line."""
    channels = case.incident.timeline.channels
    alike: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for channel, indexes in channels.by_kind():
        key = (str(channel.group), _count(channel, sent=True), _count(channel, sent=False), _is_open(channel))
        alike.setdefault(key, []).extend(map(channels.ends, indexes))
    for (group, sent, received, is_open), ends in sorted(alike.items(), key=lambda item: (_pairs(item[0]), item[1])):
        shown = ", ".join(f"{s}->{d}" for s, d in sorted(ends)[:_NAMED])
        more = f" and {len(ends) - _NAMED} more" if len(ends) > _NAMED else ""
        open_ = ", one still open" if is_open else ""
        yield fact(case, f"{plain_name(str(group))} channels {shown}{more}", f"sent {sent}, received {received}{open_}")


def _pairs(key: tuple[object, ...]) -> tuple[bool, bool]:
    _, sent, received, is_open = key
    return sent == received, not is_open


def _count(channel: Channel, *, sent: bool) -> str:
    track = channel.sent if sent else channel.received
    if track is None:
        return "none recorded"
    return f"{track.last_seq}" if track.from_start else f"{track.count} held (its first ones are lost)"


def _is_open(channel: Channel) -> bool:
    return any(track is not None and track.active_seq is not None for track in (channel.sent, channel.received))


def show_messages(
    case: Case,
    source: int | None = None,
    destination: int | None = None,
    number: int | None = None,
    around: int | None = None,
) -> Sequence[Fact]:
    channels = case.incident.timeline.channels
    if not channels:
        raise QuestionRefused(
            "no messages between two ranks were recorded in this case (gloo records none); ask threads or table"
        )
    if source is None or destination is None:
        return answer(pair_channels(case), "name source and destination")
    found = [c for c in channels if (c.source, c.destination) == (source, destination)]
    if not found:
        ways = sorted({(c.source, c.destination) for c in channels})
        raise QuestionRefused(
            f"no messages were recorded on this channel; there are {names([f'{s}->{d}' for s, d in ways])}"
        )
    rows = lines_around(around, 3, _MAX_AROUND)
    shown = (f for channel in found for f in _message_facts(case, channel, number, rows))
    facts = answer(shown, "ask for fewer messages around")
    if not facts:
        last = max(track.last_seq for channel in found for track in _ends(channel))
        raise QuestionRefused(f"no such message is recorded; the last is {last}")
    return facts


def _message_facts(case: Case, channel: Channel, number: int | None, around: int) -> Iterator[Fact]:
    tracks = _ends(channel)
    centre = max(track.last_seq for track in tracks) if number is None else number
    asked = range(max(1, centre - around), centre + around + 1)
    held = [at for at in asked if any(track.first_seq <= at <= track.last_seq for track in tracks)]
    group = name_group(channel.group, case.incident.timeline)
    way = f"{channel.source}->{channel.destination}"
    if held and not channel.counted:
        says = "the first messages are not recorded on both ends, so equal numbers may be different messages"
        yield fact(case, f"{group} messages {way}", says)
    for at in held:
        sent, received = _tell_end(case, channel.sent, at), _tell_end(case, channel.received, at)
        says = f"rank {channel.source} {sent}; rank {channel.destination} {received}"
        yield fact(case, f"{group} message {at} of {way}", says)


def _ends(channel: Channel) -> list[Track]:
    return [track for track in (channel.sent, channel.received) if track]


def _tell_end(case: Case, track: Track | None, number: int) -> str:
    if track is None:
        return "recorded none"
    if number > track.last_seq:
        return f"has not reached it (its last is {track.last_seq})"
    return tell_slot(track, number, case.incident.timeline.tables) or "no longer holds it"
