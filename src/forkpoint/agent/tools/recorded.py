"""What was recorded: how far each rank got in each group, and messages between two ranks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from forkpoint.agent.case import Case, Fact, QuestionRefused, Tool, Wire
from forkpoint.agent.naming import answer, fact, find_group, lines_around, matching_groups, name_group, names
from forkpoint.diverge.cohorts import frontier_op, issued
from forkpoint.judge.log_progress import RankProgress, read_progress
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
    """The call at `seq` and its state. None: nothing is recorded there.

    Only calls at the frontier are kept whole. For others, sizes are known only if all members must agree on them, and both
    ends of a message look the same.
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


class ProgressArguments(Wire):
    group: str | None = None
    """Default: all."""


def progress(case: Case, asked: ProgressArguments) -> Sequence[Fact]:
    timeline = case.incident.timeline
    if asked.group is not None:
        groups = matching_groups(case, asked.group) or (find_group(case, asked.group),)
        found = answer(_of_groups(case, groups), "ask table for its rows")
    else:
        groups = tuple(sorted(timeline.groups, key=lambda g: _interest(case, g)))
        found = answer(chain(_of_groups(case, groups), pair_channels(case), _of_logs(case)), "ask for one group")
    if not found:
        raise QuestionRefused("neither dumps nor logs of this case show how far a group got; ask evidence or log_lines")
    return found


def _interest(case: Case, timeline: GroupTimeline) -> tuple[bool, bool]:
    """Sort key: the divergence's group first, then those in which a rank waits."""
    divergence = case.verdict.divergence
    waits = any(track.first_active for _, rank in timeline.kinds if (track := timeline.track(rank)))
    return (divergence is None or divergence.group != timeline.group, not waits)


_FEW_GROUPS = 4
"""Up to this many groups with one description are listed singly; more are summed up."""


def _of_groups(case: Case, groups: Sequence[GroupTimeline]) -> Iterator[Fact]:
    counts, fork = Counter(str(group.group) for group in groups), case.verdict.divergence
    together: dict[str, list[GroupTimeline]] = {}
    for group in groups:
        if counts[str(group.group)] <= _FEW_GROUPS or (fork is not None and fork.group == group.group):
            yield from _of_group(case, name_group(group.group, case.incident.timeline), [group])
        else:
            together.setdefault(str(group.group), []).append(group)
    for name, alike in together.items():
        yield from _of_group(case, f"{name} ({len(alike)} groups)", alike)


def _of_group(case: Case, name: str, groups: Sequence[GroupTimeline]) -> Iterator[Fact]:
    told: dict[str, list[int]] = {}
    classes = [members_alike(group, case.incident.timeline) for group in groups]
    for group, alike in zip(groups, classes, strict=True):
        for members in alike:
            told.setdefault(_tell_rank(group, members[0]), []).extend(members)
    for says, ranks in sorted(told.items(), key=lambda item: min(item[1])):
        yield fact(case, name, f"{name_ranks(ranks)}: {says}")
    for group, alike in zip(groups, classes, strict=True):
        behind = _tell_behind(group, alike)
        if behind:
            yield fact(case, name, behind)
        if group.maybe:
            yield fact(case, name, f"no dump says whether {name_ranks(group.maybe)} belong to it")


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


def _tell_rank(group: GroupTimeline, rank: int) -> str:
    trace, track = group.traces.get(rank), group.track(rank)
    if trace is None:
        return "no dump"
    if track is None:
        return "its ring buffer no longer has a call of this group" if group.is_evicted(rank) else "no call recorded"
    waits = f"; waits since seq {track.first_active.seq}" if track.first_active else "; nothing is open"
    done = f"; last done seq {track.last_done.seq}" if track.last_done else "; none done"
    ends = "; its dump ends early, so it may have gone on" if rank in group.blind_after else ""
    return f"last issued seq {track.last.seq} {tell_op(track.last)}{done}{waits}{ends}"


def _tell_behind(group: GroupTimeline, classes: Sequence[Sequence[int]]) -> str | None:
    last = {members[0]: track.last_seq for members in classes if (track := group.track(members[0]))}
    furthest = max(last.values(), default=0)
    behind = [
        rank
        for members in classes
        if last.get(members[0], 0) < furthest and members[0] in group.traces and not group.is_evicted(members[0])
        for rank in members
        if rank not in group.blind_after
    ]
    return f"furthest is seq {furthest}; behind it: {name_ranks(behind)}" if behind else None


def _of_logs(case: Case) -> Iterator[Fact]:
    """Ranks whose logs say the same share a line, which cites the first."""
    together: dict[str, list[RankProgress]] = {}
    for told in read_progress(case.incident):
        together.setdefault(_tell_log(told), []).append(told)
    for says, ranks in together.items():
        event, who = ranks[0].event, name_ranks(one.rank for one in ranks)
        yield fact(
            case,
            f"{event.file} line {event.line}",
            f"{who} by {'its log' if len(ranks) == 1 else 'their logs'}: {says}",
        )


def _tell_log(told: RankProgress) -> str:
    group = f" in {told.desc or told.group}" if told.desc or told.group else ""
    parts = [f"timed out in {told.work.op} seq {told.work.seq}{group}" if told.work else f"counters{group}"]
    if told.counters is not None:
        parts.append(f"last enqueued {told.counters.enqueued}, last completed {told.counters.completed}")
    return "; ".join(parts)


PROGRESS = Tool(
    name="progress",
    description=(
        "How far each rank got in each group and channel, and by its log: last issued, last done, what it waits in, who is "
        "behind."
    ),
    arguments=ProgressArguments,
    answer=progress,
)


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
        parts.append(f"{name_ranks(shift.ranks)} {way} since seq {shift.since}")
    if divergence.cycle:
        parts.append(f"ranks {', '.join(map(str, divergence.cycle[:16]))} wait for each other in a ring")
    if divergence.unknown:
        parts.append(f"what {name_ranks(divergence.unknown)} did here is unknown")
    return "; ".join(parts)


# ---------------------------------------------------------------------------------------------------------------------
# Messages between two ranks.

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
        yield fact(case, f"{group} channels {shown}{more}", f"sent {sent}, received {received}{open_}")


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


class ChannelsArguments(Wire):
    source: int | None = None
    """The rank that sends. Default: all channels."""
    destination: int | None = None
    number: int | None = None
    """Of the message. Default: the last."""
    around: int | None = None


def channels(case: Case, asked: ChannelsArguments) -> Sequence[Fact]:
    channels = case.incident.timeline.channels
    if not channels:
        raise QuestionRefused(
            "no messages between two ranks were recorded in this case (gloo records none); ask threads or table"
        )
    if asked.source is None or asked.destination is None:
        return answer(pair_channels(case), "name source and destination")
    found = [c for c in channels if (c.source, c.destination) == (asked.source, asked.destination)]
    if not found:
        ways = sorted({(c.source, c.destination) for c in channels})
        raise QuestionRefused(
            f"no messages were recorded on this channel; there are {names([f'{s}->{d}' for s, d in ways])}"
        )
    around = lines_around(asked.around, 3, _MAX_AROUND)
    shown = (f for channel in found for f in _message_facts(case, channel, asked.number, around))
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


CHANNELS = Tool(
    name="channels",
    description="Sends and receives per channel with counts, unmatched ones first; or message by message from one rank to another.",
    arguments=ChannelsArguments,
    answer=channels,
)
