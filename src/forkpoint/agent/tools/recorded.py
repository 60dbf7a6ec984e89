"""What was recorded: how far each rank got in each group, a group as a table, messages between two ranks, and who waits for whom."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from forkpoint.agent.case import NoArguments, Wire, tool
from forkpoint.brief.calls import members_alike, pair_channels, show_messages, tell_op
from forkpoint.brief.case import Case, Fact, answer, fact, find_group, matching_groups, name_group
from forkpoint.brief.table import show_table
from forkpoint.brief.where import show_waits
from forkpoint.judge.facts.log_progress import RankProgress, read_progress
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.world import name_ranks


class ProgressArguments(Wire):
    group: str | None = None
    """Default: all."""


@tool(
    "How far each rank got in each group and channel, and by its log: last issued, last done, what it waits in, who is "
    "behind."
)
def progress(case: Case, asked: ProgressArguments) -> Sequence[Fact]:
    timeline = case.incident.timeline
    if asked.group is not None:
        groups = matching_groups(case, asked.group) or (find_group(case, asked.group),)
        return answer(_of_groups(case, groups), "ask table for its rows", _NO_PROGRESS)
    groups = tuple(sorted(timeline.groups, key=lambda g: _interest(case, g)))
    shown = chain(_of_groups(case, groups), pair_channels(case), _of_logs(case))
    return answer(shown, "ask for one group", _NO_PROGRESS)


_NO_PROGRESS = "neither dumps nor logs of this case show how far a group got; ask evidence or log_lines"


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


# ---------------------------------------------------------------------------------------------------------------------
# Messages between two ranks.


class ChannelsArguments(Wire):
    source: int | None = None
    """The rank that sends. Default: all channels."""
    destination: int | None = None
    number: int | None = None
    """Of the message. Default: the last."""
    around: int | None = None


@tool(
    "Sends and receives per channel with counts, unmatched ones first; or message by message from one rank to another."
)
def channels(case: Case, asked: ChannelsArguments) -> Sequence[Fact]:
    return show_messages(case, asked.source, asked.destination, asked.number, asked.around)


class TableArguments(Wire):
    group: str | None = None
    """Default: that of the fork."""
    seq: int | None = None
    """The middle row."""
    around: int | None = None
    """Rows before and after: 3."""


@tool(
    "A group's calls around the fork, a row per seq, ranks that did the same together: op, sizes, state, line of the "
    "program, or why there is none; the last row that agrees, the first that differs."
)
def table(case: Case, asked: TableArguments) -> Sequence[Fact]:
    return show_table(case, asked.group, asked.seq, asked.around)


@tool("The wait graph: who waits in which call, for whom and why, and the cycle if there is one.")
def waits(case: Case, _: NoArguments) -> Sequence[Fact]:
    return show_waits(case)
