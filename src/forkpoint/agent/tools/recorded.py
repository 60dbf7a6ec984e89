"""What was recorded: how far each rank came, ranks by what they did at one slot, slots of a group, messages between two ranks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from forkpoint.agent.case import Case, Fact, Refused, Tool, Wire
from forkpoint.agent.naming import answer, fact, find_group, known_seq, lines_around, matching_groups, name_group, names
from forkpoint.diverge.cohorts import cohorts_at, frontier_op, issued
from forkpoint.judge.log_progress import RankProgress, read_progress
from forkpoint.model.entries import Tables
from forkpoint.model.frames import user_place
from forkpoint.model.incident import Cohort, Divergence
from forkpoint.model.op import SIZES_FREE, Op, Signature
from forkpoint.model.timeline import Channel, Gap, GroupTimeline
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
    return " ".join(filter(None, [first.op, sizes, *dtypes])) + more


def tell_sizes(sizes: tuple[tuple[int, ...], ...]) -> str:
    more = f" and {len(sizes) - _MAX_SIZES} more" if len(sizes) > _MAX_SIZES else ""
    return " ".join(str(list(size)) for size in sizes[:_MAX_SIZES]) + more


def tell_slot(track: Track, seq: int, tables: Tables, volumes: Volumes | None = None) -> str | None:
    """What a track holds at `seq`, and how far it came. None: it holds nothing there.

    Only calls at the frontier are kept whole. Of others a rank's sizes are known where members must agree on them, and
    both ends of a message look like one of them.
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
    group: str | None
    """A group's name or description; null: all groups."""


def progress(case: Case, asked: ProgressArguments) -> Sequence[Fact]:
    timeline = case.incident.timeline
    if asked.group is not None:
        groups = matching_groups(case, asked.group) or (find_group(case, asked.group),)
    else:
        groups = tuple(sorted(timeline.groups, key=lambda g: _interest(case, g)))
    channels = [c for c in timeline.channels if asked.group is None or c.group in {g.group for g in groups}]
    logs = _of_logs(case) if asked.group is None else ()
    found = answer(chain(_of_groups(case, groups), _of_channels(case, channels), logs), "ask for one group")
    if not found:
        raise Refused("neither dumps nor logs of this case tell how far a group came; ask evidence or log_lines")
    return found


def _interest(case: Case, timeline: GroupTimeline) -> tuple[bool, bool]:
    """The divergence's first, then those in which somebody waits."""
    divergence = case.verdict.divergence
    waits = any(track.first_active for rank in timeline.traces if (track := timeline.track(rank)))
    return (divergence is None or divergence.group != timeline.group, not waits)


def _of_groups(case: Case, groups: Iterable[GroupTimeline]) -> Iterator[Fact]:
    for group in groups:
        name = name_group(group.group, case.incident.timeline)
        told: dict[str, list[int]] = {}
        for rank in group.group.ranks:
            told.setdefault(_tell_rank(group, rank), []).append(rank)
        for says, ranks in sorted(told.items(), key=lambda item: item[1]):
            yield fact(case, name, f"{name_ranks(ranks)}: {says}")
        behind = _tell_behind(group)
        if behind:
            yield fact(case, name, behind)
        if group.maybe:
            yield fact(case, name, f"no dump says whether {name_ranks(group.maybe)} belong to it")


def _tell_rank(group: GroupTimeline, rank: int) -> str:
    trace, track = group.traces.get(rank), group.track(rank)
    if trace is None:
        return "no dump"
    if track is None:
        return "its ring buffer holds no call of it any more" if group.is_evicted(rank) else "no call recorded"
    waits = f"; waits since seq {track.first_active.seq}" if track.first_active else "; nothing is open"
    done = f"; last done seq {track.last_done.seq}" if track.last_done else "; none done"
    ends = "; its dump ends early, so it may have gone on" if rank in group.blind_after else ""
    return f"last issued seq {track.last.seq} {tell_op(track.last)}{done}{waits}{ends}"


def _tell_behind(group: GroupTimeline) -> str | None:
    last = {rank: track.last_seq for rank in group.traces if (track := group.track(rank))}
    furthest = max(last.values(), default=0)
    unsure = {*group.blind_after, *(rank for rank in group.traces if group.is_evicted(rank))}
    behind = [rank for rank in group.traces if last.get(rank, 0) < furthest and rank not in unsure]
    return f"furthest is seq {furthest}; behind it: {name_ranks(behind)}" if behind else None


def _of_channels(case: Case, channels: Iterable[Channel]) -> Iterator[Fact]:
    for channel in channels:
        name = name_group(channel.group, case.incident.timeline)
        sent, received = (
            f"{what} up to message {track.last_seq}, {track.last.state}" if track else f"recorded nothing {what}"
            for what, track in (("sent", channel.sent), ("received", channel.received))
        )
        where = f"{name} messages {channel.source}->{channel.destination}"
        yield fact(case, where, f"rank {channel.source} {sent}; rank {channel.destination} {received}")


def _of_logs(case: Case) -> Iterator[Fact]:
    for told in read_progress(case.incident):
        yield fact(case, f"{told.event.file} line {told.event.line}", f"rank {told.rank} by its log: {_tell_log(told)}")


def _tell_log(told: RankProgress) -> str:
    group = f" in {told.desc or told.group}" if told.desc or told.group else ""
    parts = [f"timed out in {told.work.op} seq {told.work.seq}{group}" if told.work else f"counters{group}"]
    if told.counters is not None:
        parts.append(f"last enqueued {told.counters.enqueued}, last completed {told.counters.completed}")
    return "; ".join(parts)


PROGRESS = Tool(
    name="progress",
    description=(
        "How far each rank came in each process group and channel: last issued, last done, what it waits in, who is behind. "
        "Ranks that came equally far share a line."
    ),
    arguments=ProgressArguments,
    answer=progress,
)


class CohortsArguments(Wire):
    group: str | None
    """A group's name or description; null, with seq null: the fork point of the verdict."""
    seq: int | None


def cohorts(case: Case, asked: CohortsArguments) -> Sequence[Fact]:
    if asked.group is None and asked.seq is None:
        return answer(_of_divergence(case), "ask for a group and a seq")
    if asked.group is None or asked.seq is None:
        raise Refused("give both group and seq, or null for both to get the fork point")
    group = find_group(case, asked.group)
    known_seq(group, asked.seq)
    where = f"{name_group(group.group, case.incident.timeline)} seq {asked.seq}"
    found = cohorts_at(group, asked.seq, case.incident.timeline)
    return answer((fact(case, where, _tell_cohort(cohort)) for cohort in found), "ask for another slot")


def _of_divergence(case: Case) -> Iterator[Fact]:
    first = case.verdict.divergence
    if first is None:
        raise Refused("the evidence shows no slot at which ranks part; ask with a group and a seq, or ask progress")
    where = _slot(first, case)
    yield fact(case, where, _tell_divergence(first))
    yield from (fact(case, where, _tell_cohort(cohort)) for cohort in first.cohorts)
    for other in case.incident.divergences:
        if other != first and _slot(other, case) != where:
            yield fact(case, _slot(other, case), f"ranks part here, too: {_tell_divergence(other)}")


def _slot(divergence: Divergence, case: Case) -> str:
    group = name_group(divergence.group, case.incident.timeline)
    if divergence.channel is not None:
        return f"{group} message {divergence.seq} of {divergence.channel[0]}->{divergence.channel[1]}"
    return f"{group} seq {divergence.seq}"


def _tell_divergence(divergence: Divergence) -> str:
    parts = [f"ranks part in {divergence.how}"]
    if divergence.first_visible_seq not in {None, divergence.seq}:
        parts.append(f"recorded calls differ first at seq {divergence.first_visible_seq}")
    if divergence.hang_seq is not None:
        parts.append(f"ranks wait in seq {divergence.hang_seq}")
    if divergence.odd:
        parts.append(f"unlike the rest: {name_ranks(divergence.odd)}")
    if divergence.shift is not None:
        shift = divergence.shift
        way = f"skipped {shift.by}" if shift.by > 0 else f"issued {-shift.by} more"
        parts.append(f"{name_ranks(shift.ranks)} {way} since seq {shift.since}")
    if divergence.cycle:
        parts.append(f"ranks {', '.join(map(str, divergence.cycle[:16]))} wait for each other in a ring")
    if divergence.unknown:
        parts.append(f"what {name_ranks(divergence.unknown)} did here is not known")
    return "; ".join(parts)


def _tell_cohort(cohort: Cohort) -> str:
    # Where sizes need not agree, a cohort's are those of one of its ranks.
    sizes = "with sizes of each rank's own (ask slots)" if cohort.op in SIZES_FREE else tell_sizes(cohort.sizes)
    call = " ".join(filter(None, [cohort.op, sizes, *dict.fromkeys(cohort.dtypes)]))
    place = user_place(cohort.stack)
    parts = [
        call or "no call here",
        *([cohort.state] if cohort.state else []),
        *([cohort.where] if cohort.where else []),
        *([f"called from {place}"] if place else []),
    ]
    return f"{name_ranks(cohort.ranks)} ({cohort.role}): {', '.join(parts)}"


COHORTS = Tool(
    name="cohorts",
    description=(
        "Ranks by what they did at the fork point (group and seq null), or at any slot of a group: call, sizes, dtype, state, "
        "line it was called from, or why there is none."
    ),
    arguments=CohortsArguments,
    answer=cohorts,
)


_MAX_AROUND = 10
_GAP_WORDS = {
    Gap.NOT_REACHED: "not reached",
    Gap.EVICTED: "not known: no longer in the ring buffer",
    Gap.NO_DUMP: "not known: no dump, or it ends before",
}


class SlotsArguments(Wire):
    group: str
    """A group's name or description."""
    seq: int
    around: int | None
    """So many slots before and after; null: 3."""


def slots(case: Case, asked: SlotsArguments) -> Sequence[Fact]:
    group = find_group(case, asked.group)
    recorded = known_seq(group, asked.seq)
    around = lines_around(asked.around, 3, _MAX_AROUND)
    last = max(asked.seq, min(recorded[-1], asked.seq + around))
    shown = range(max(recorded[0], asked.seq - around), last + 1)
    return answer(_slot_facts(case, group, shown), "ask for fewer slots around")


def _slot_facts(case: Case, group: GroupTimeline, seqs: range) -> Iterator[Fact]:
    name = name_group(group.group, case.incident.timeline)
    for seq in seqs:
        told: dict[str, list[int]] = {}
        for rank in group.group.ranks:
            told.setdefault(_tell_member(case, group, rank, seq), []).append(rank)
        for says, ranks in sorted(told.items(), key=lambda item: (-len(item[1]), item[1])):
            yield fact(case, f"{name} seq {seq}", f"{name_ranks(ranks)}: {says}")


def _tell_member(case: Case, group: GroupTimeline, rank: int, seq: int) -> str:
    gap = group.gap(rank, seq)
    track = group.track(rank)
    if gap is not None or track is None:
        return _GAP_WORDS[gap or Gap.NO_DUMP]
    trace = group.traces[rank]
    return tell_slot(track, seq, case.incident.timeline.tables, trace.volumes) or "not held between calls that are"


SLOTS = Tool(
    name="slots",
    description=(
        "What each member of a group recorded in the slots around a seq: call, sizes, dtype, state, or why there is nothing. "
        "Ranks that agree share a line."
    ),
    arguments=SlotsArguments,
    answer=slots,
)


class MessagesArguments(Wire):
    source: int
    """The rank that sends."""
    destination: int
    """The rank that receives."""
    number: int | None
    """Of the message on its way from one to the other, from 1; null: the last ones."""
    around: int | None
    """So many before and after; null: 3."""


def messages(case: Case, asked: MessagesArguments) -> Sequence[Fact]:
    channels = case.incident.timeline.channels
    if not channels:
        raise Refused("no messages between two ranks were recorded in this case")
    found = [c for c in channels if (c.source, c.destination) == (asked.source, asked.destination)]
    if not found:
        ways = sorted({(c.source, c.destination) for c in channels})
        raise Refused(f"no messages were recorded on this way; there are {names([f'{s}->{d}' for s, d in ways])}")
    around = lines_around(asked.around, 3, _MAX_AROUND)
    shown = (f for channel in found for f in _message_facts(case, channel, asked.number, around))
    facts = answer(shown, "ask for fewer messages around")
    if not facts:
        last = max(track.last_seq for channel in found for track in _ends(channel))
        raise Refused(f"no such message is recorded; the last is {last}")
    return facts


def _message_facts(case: Case, channel: Channel, number: int | None, around: int) -> Iterator[Fact]:
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
        sent, received = _tell_end(case, channel.sent, at), _tell_end(case, channel.received, at)
        says = f"rank {channel.source} {sent}; rank {channel.destination} {received}"
        yield fact(case, f"{group} message {at} of {way}", says)


def _ends(channel: Channel) -> list[Track]:
    return [track for track in (channel.sent, channel.received) if track]


def _tell_end(case: Case, track: Track | None, number: int) -> str:
    if track is None:
        return "recorded none"
    if number > track.last_seq:
        return f"has not come to it (its last is {track.last_seq})"
    return tell_slot(track, number, case.incident.timeline.tables) or "no longer holds it"


MESSAGES = Tool(
    name="messages",
    description="Messages from one rank to another (send and recv): what each end recorded of the n-th, and how far each end came.",
    arguments=MessagesArguments,
    answer=messages,
)
