"""Who waits for whom if dumps hold no entries: `pg_status` still counts how many calls each rank has made and finished in each
group.

A counter is a position. A rank that has finished all its calls in every group, and has made fewer calls than those who wait in
one of its groups, is outside communication. A rank that has calls pending waits itself, however few they are.
"""

from collections.abc import Iterator

from msgspec import Struct

from forkpoint.diverge.cohorts import build_divergence
from forkpoint.diverge.habits import odd_ranks
from forkpoint.model.incident import Divergence, PartingKind, fact
from forkpoint.model.timeline import GroupTimeline, Timeline


class CountedWait(Struct, frozen=True, eq=False):
    """A call in which, by their counters, members of a group wait, and which others have not reached."""

    group: GroupTimeline
    seq: int
    present: tuple[int, ...]
    """Have made this call, and not finished it."""
    absent: tuple[int, ...]
    """Have made all calls before this one."""
    unknown: tuple[int, ...]


@fact
def find_counted_waits(timeline: Timeline) -> tuple[CountedWait, ...]:
    """Empty if any dump holds entries: those say more."""
    traces = timeline.traces.values()
    if any(trace.entries for trace in traces) or not any(trace.has_counters for trace in traces):
        return ()
    return tuple(wait for group in timeline.groups if (wait := _wait_in(group)))


def find_counted(timeline: Timeline) -> Divergence | None:
    """The call that ranks with nothing pending in any group have not reached; None if several such calls lack different ranks,
    because any of them may have come first.
    """
    waits = find_counted_waits(timeline)
    free = frozenset(r for w in waits for r in w.absent if not has_pending(r, timeline))
    missing = [w for w in waits if free.intersection(w.absent)]
    if not free or any(not free.issuperset(w.absent) for w in missing):
        return None
    whole = [w for w in missing if free.issubset(w.absent)]
    if not whole:
        return None
    most = max(whole, key=lambda w: (len(w.present) - len(w.unknown), w.group.group))
    sides = (most.present, most.absent)
    return build_divergence(
        PartingKind.ABSENCE,
        most.group,
        most.seq,
        timeline,
        sides=sides,
        hang=most.seq,
        odd=odd_ranks(sides, len(most.unknown)),
        unknown=most.unknown,
    )


def has_pending(rank: int, timeline: Timeline) -> bool:
    """By its counters. True if it has none: then nothing shows that it waits for nobody."""
    counted = [(g.last_enqueued, g.last_completed or 0) for g in timeline.traces[rank].groups if g.last_enqueued]
    return not counted or any(made != done for made, done in counted)


def _wait_in(group: GroupTimeline) -> CountedWait | None:
    """Members have finished the same number of calls, as they must if all take part in each; messages are counted by each rank
    alone.
    """
    counts = dict(_counts(group))
    pending = [rank for rank, (made, done) in counts.items() if made > done]
    finished = {counts[rank][1] for rank in counts}
    if not pending or len(finished) != 1:
        return None
    seq = finished.pop() + 1
    absent = tuple(rank for rank in counts if rank not in pending)
    unknown = tuple(rank for rank in group.group.ranks if rank not in counts)
    return CountedWait(group, seq, tuple(pending), absent, unknown) if absent else None


def _counts(group: GroupTimeline) -> Iterator[tuple[int, tuple[int, int]]]:
    for rank in group.group.ranks:
        trace = group.traces.get(rank)
        if trace is not None and trace.last_enqueued:
            yield rank, (trace.last_enqueued, trace.last_completed or 0)
