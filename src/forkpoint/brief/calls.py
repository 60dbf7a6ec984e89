"""Recorded calls in words: a call, groups of members whose records say the same, a divergence, and messages between two ranks."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from forkpoint.brief.case import Case, Fact, QuestionRefused, answer, fact, lines_around, name_group, names, plain_name
from forkpoint.diverge.cohorts import frontier_op, issued
from forkpoint.model.entries import Tables
from forkpoint.model.incident import Divergence
from forkpoint.model.incident import fact as once
from forkpoint.model.op import SIZES_FREE, Op, Signature
from forkpoint.model.timeline import Channel, GroupTimeline, Timeline
from forkpoint.model.trace import Track, Volumes
from forkpoint.model.world import name_ranks

_MAX_SIZES = 3


def tell_op(op: Op) -> str:
    """`all_reduce [71178] Float, scheduled`."""
    return f"{tell_call(op.signatures)}, {op.state}"


def tell_call(signatures: tuple[Signature, ...]) -> str:
    first = signatures[0]
    more = f" and {len(signatures) - 1} more calls in one" if len(signatures) > 1 else ""
    sizes = tell_sizes(first.input_sizes or first.output_sizes)
    if first.op in SIZES_FREE and first.input_sizes and first.output_sizes:
        sizes = f"{sizes} -> {tell_sizes(first.output_sizes)}"
    dtypes = dict.fromkeys(first.input_dtypes or first.output_dtypes)
    return " ".join(word for word in (first.op, sizes, *dtypes) if word) + more


def tell_sizes(sizes: tuple[tuple[int, ...], ...]) -> str:
    more = f" and {len(sizes) - _MAX_SIZES} more" if len(sizes) > _MAX_SIZES else ""
    return " ".join(str(list(size)) for size in sizes[:_MAX_SIZES]) + more


def tell_slot(track: Track, seq: int, tables: Tables, volumes: Volumes | None = None) -> str | None:
    """The call at `seq` and its state. None if nothing is recorded there.

    Only calls at the frontier are kept in full. For others, sizes are known only if all members must agree on them, and both ends
    of a message look the same.
    """
    op = frontier_op(track, seq)
    if op is not None:
        return tell_op(op)
    signature, _ = issued(track, seq, tables)
    if signature is None:
        return None
    done = track.last_done is not None and seq <= track.last_done.seq
    if signature.peers is not None:
        signature = replace(signature, op=track.last.signatures[0].op)
    call = _tell_volume(signature, seq, volumes) if signature.op in SIZES_FREE else tell_call((signature,))
    return f"{call}, {'completed' if done else 'issued'}"


def _tell_volume(signature: Signature, seq: int, volumes: Volumes | None) -> str:
    at = volumes.seqs.tolist().index(seq) if volumes is not None and seq in volumes.seqs else None
    if volumes is None or at is None:
        return signature.op
    return f"{signature.op} that sends {volumes.sent[at]} and receives {volumes.received[at]} elements"


@once
def _how_held(timeline: Timeline) -> dict[int, tuple[bool, bool]]:
    """Rank -> (its dump omits finished calls, its dump begins with the rank's first call)."""
    return {rank: (trace.is_partial, trace.from_start) for rank, trace in timeline.traces.items()}


def members_alike(group: GroupTimeline, timeline: Timeline) -> list[list[int]]:
    """Groups members that get the same text: same kind of track, and the same parts of it recorded."""
    kinds = {rank: kind for rank, kind, _ in group.traces.completed()}
    held = _how_held(timeline)
    together: dict[object, list[int]] = {}
    for rank in group.group.ranks:
        key: object = None
        if rank in group.traces:
            key = (kinds.get(rank, -1), group.blind_after.get(rank), *held[rank])
        together.setdefault(key, []).append(rank)
    return list(together.values())


def tell_divergence(divergence: Divergence) -> str:
    parts = [f"ranks diverge in {divergence.how}"]
    if divergence.first_visible_seq not in {None, divergence.seq}:
        parts.append(f"recorded calls differ first at seq {divergence.first_visible_seq}")
    if divergence.hang_seq is not None:
        parts.append(f"ranks wait in seq {divergence.hang_seq}")
    if divergence.odd:
        parts.append(f"different from the rest: {name_ranks(divergence.odd)}")
    if divergence.shift is not None:
        shift = divergence.shift
        way = f"skipped {shift.by}" if shift.by > 0 else f"issued {-shift.by} more"
        parts.append(f"{name_ranks(shift.ranks) if shift.ranks else 'one side'} {way} since seq {shift.since}")
    if divergence.cycle:
        parts.append(f"ranks {', '.join(map(str, divergence.cycle[:16]))} wait for each other in a ring")
    if divergence.unknown:
        parts.append(f"what {name_ranks(divergence.unknown)} did here is unknown")
    return "; ".join(parts)


# ---------------------------------------------------------------------------------------------------------------------
# Messages between two ranks: channels with their counts, or one channel message by message.

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
