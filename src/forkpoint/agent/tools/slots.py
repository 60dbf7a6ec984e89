"""What every member of a group has in the slots around a seq."""

from collections.abc import Iterator, Sequence

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Tool
from forkpoint.agent.tools.answers import answer, fact
from forkpoint.agent.tools.calls import tell_slot
from forkpoint.agent.tools.groups import find_group, known_seq, name_group
from forkpoint.agent.wire import Wire
from forkpoint.model.ranks import name_ranks
from forkpoint.model.timeline import Gap, GroupTimeline

_MAX_AROUND = 10
_GAPS = {
    Gap.NOT_REACHED: "not reached",
    Gap.EVICTED: "not known: no longer in the ring buffer",
    Gap.NO_DUMP: "not known: no dump, or it ends before",
}


class Arguments(Wire):
    group: str
    """A group's name or description."""
    seq: int
    around: int | None
    """So many slots before and after; null: 3."""


def slots(case: Case, asked: Arguments) -> Sequence[Fact]:
    group = find_group(case, asked.group)
    recorded = known_seq(group, asked.seq)
    around = min(max(3 if asked.around is None else asked.around, 0), _MAX_AROUND)
    last = max(asked.seq, min(recorded[-1], asked.seq + around))
    shown = range(max(recorded[0], asked.seq - around), last + 1)
    return answer(_facts(case, group, shown), "ask for fewer slots around")


def _facts(case: Case, group: GroupTimeline, seqs: range) -> Iterator[Fact]:
    name = name_group(group.group, case.incident.timeline)
    for seq in seqs:
        told: dict[str, list[int]] = {}
        for rank in group.group.ranks:
            told.setdefault(_tell(case, group, rank, seq), []).append(rank)
        for says, ranks in sorted(told.items(), key=lambda item: (-len(item[1]), item[1])):
            yield fact(case, f"{name} seq {seq}", f"{name_ranks(ranks)}: {says}")


def _tell(case: Case, group: GroupTimeline, rank: int, seq: int) -> str:
    gap = group.gap(rank, seq)
    track = group.track(rank)
    if gap is not None or track is None:
        return _GAPS[gap or Gap.NO_DUMP]
    trace = group.traces[rank]
    return tell_slot(track, seq, case.incident.timeline.tables, trace.volumes) or "not held between calls that are"


TOOL = Tool(
    name="slots",
    description=(
        "What each member of a group recorded in the slots around a seq: call, sizes, dtype, state, or why there is nothing. "
        "Ranks that agree share a line."
    ),
    arguments=Arguments,
    answer=slots,
)
