"""How far each rank came in each group, and who is behind."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import answer, fact
from forkpoint.agent.tools.calls import tell_op
from forkpoint.agent.tools.groups import find_group, matching_groups, name_group
from forkpoint.agent.wire import Wire
from forkpoint.log_progress import RankProgress, read_progress
from forkpoint.model.ranks import name_ranks
from forkpoint.model.timeline import Channel, GroupTimeline


class Arguments(Wire):
    group: str | None
    """A group's name or description; null: all groups."""


def progress(case: Case, asked: Arguments) -> Sequence[Fact]:
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


TOOL = Tool(
    name="progress",
    description=(
        "How far each rank came in each process group and channel: last issued, last done, what it waits in, who is behind. "
        "Ranks that came equally far share a line."
    ),
    arguments=Arguments,
    answer=progress,
)
