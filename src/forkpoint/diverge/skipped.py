"""Ranks that went past a call without making it: they are in the same call as the others, with fewer calls before it.

A host that does not wait for its GPU runs ahead. So a rank may be missing from a call for which its peers wait, and yet have made
the last call of the step, which its peers made after that one. It is not behind, and its own pending calls do not block it: it
skipped what the others did in between, or they did too much.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import numpy as np
from msgspec import Struct

from forkpoint.diverge.cohorts import build_divergence
from forkpoint.diverge.habits import odd_ranks
from forkpoint.diverge.slots import sequence
from forkpoint.diverge.waits import Waiting, Waits
from forkpoint.model.entries import Tables
from forkpoint.model.frames import in_two_threads
from forkpoint.model.incident import Divergence, PartingKind, Shift, fact
from forkpoint.model.op import Op, Signature, Stack
from forkpoint.model.timeline import GroupTimeline, Timeline
from forkpoint.model.trace import Track

_MOST_SLOTS = 256
"""Number of slots with missing ranks to examine: what parted the ranks shows in the first of them."""


class _Standing(Struct, frozen=True):
    """The last call that a rank has made, in a form that is equal in parallel groups."""

    desc: str
    members: int
    seq: int
    signatures: tuple[Signature, ...]
    stack: Stack | None


class _Last(Struct, frozen=True):
    standing: _Standing
    op: Op


def find_skipped(waits: Waits, timeline: Timeline) -> Divergence | None:
    """The divergence at the slot that was passed first."""
    groups = {g.group: g for g in timeline.groups}
    slots = (
        w
        for w in waits.waiting
        if waits.stand(w.ranks[0]).channel is None and not waits.keys().isdisjoint(w.held.absent)
    )
    found = [
        (waits.stand(waits.first(waiting.ranks)).created_ns, passed)
        for waiting in islice(slots, _MOST_SLOTS)
        if (passed := _passed_at(waiting, groups[waits.stand(waiting.ranks[0]).group], waits, timeline))
    ]
    return min(found, key=lambda one: one[0])[1] if found else None


def _passed_at(waiting: Waiting, group: GroupTimeline, waits: Waits, timeline: Timeline) -> Divergence | None:
    rank, absent = waiting.ranks[0], tuple(sorted(waits.keys() & set(waiting.held.absent)))
    slot, last = waits.stand(rank), _last_call(rank, timeline)
    if (
        last is None
        or (last.standing.desc, last.standing.seq) == (group.group.desc, slot.seq)
        or last.op.record_id <= slot.record_id
    ):
        return None
    for other in absent:
        theirs = _last_call(other, timeline)
        if (
            theirs is None
            or theirs.standing != last.standing
            or in_two_threads((last.op.stack, _stack_at(slot.seq, group, rank)))
        ):
            return None
    counts = {r: t.last_seq for r in (rank, *absent) if (t := group.track(r))}
    left = {counts.get(r, 0) for r in absent}
    if len(left) != 1 or (by := counts[rank] - left.pop()) <= 0:
        return None
    present = tuple(r for r in group.group.ranks if group.gap(r, slot.seq) is None)
    seen = [last_ for r in present if (last_ := _last_call(r, timeline))]
    if any(one.standing != last.standing for one in seen) or _in_other_order(group, slot.seq, last, timeline):
        return None
    odd = _odd(present, absent, counts[rank], by, group, timeline)
    hidden = tuple(r for r in waiting.held.absent if r not in absent)
    since = _since(group.track(rank), group.track(absent[0]), slot.seq, by, timeline.tables)
    return build_divergence(
        PartingKind.ABSENCE,
        group,
        slot.seq,
        timeline,
        sides=(present, absent),
        hang=slot.seq,
        odd=odd,
        shift=Shift(absent, by, since) if odd != present else Shift(present, -by, since),
        unknown=(*waiting.held.unknown, *hidden),
    )


def _since(usual: Track | None, other: Track | None, seq: int, by: int, tables: Tables) -> int:
    """The first skipped call. Later calls were paired with calls of the others that look the same, until there were none left."""
    if usual is None or other is None:
        return seq
    ours, theirs = sequence(usual, tables), sequence(other, tables)
    first = max(ours.first, theirs.first)
    one, two = ours.calls[first - ours.first :], theirs.calls[first - theirs.first :]
    apart = np.flatnonzero(one[: len(two)] != two[: len(one)])
    if not apart.size or not np.array_equal(one[apart[0] + by :], two[apart[0] :]):
        return seq
    return first + int(apart[0])


def _last_call(rank: int, timeline: Timeline) -> _Last | None:
    """Over all groups; None if its dump does not show where it is."""
    if rank not in timeline.positions:
        return None
    held = [(group, track.last) for group in timeline.traces[rank].groups if (track := group.collectives)]
    if not held:
        return None
    group, op = max(held, key=lambda one: one[1].record_id)
    return _Last(_Standing(group.desc, len(group.members or ()), op.seq, op.signatures, op.stack), op)


def _stack_at(seq: int, group: GroupTimeline, rank: int) -> Stack | None:
    track = group.track(rank)
    op = track.first_active if track else None
    return op.stack if op is not None and op.seq == seq else None


def _beside(group: GroupTimeline, timeline: Timeline) -> Iterator[GroupTimeline]:
    """Parallel groups whose corresponding member is known."""
    return islice((g for g in timeline.groups if g.group.is_parallel_to(group.group)), _MOST_SLOTS)


def _in_other_order(group: GroupTimeline, seq: int, last: _Last, timeline: Timeline) -> bool:
    """A rank made the last call of the others first, and then this one. A rank that has only made the first of the two so far may
    be doing the same.
    """
    kind, standing = (group.group.desc, len(group.group.ranks)), last.standing
    for parallel in (group, *_beside(group, timeline)):
        for rank in parallel.group.ranks:
            own = _last_call(rank, timeline)
            if own is None or (own.standing.desc, own.standing.members) != kind or own.standing.seq < seq:
                continue
            tracks = [
                g.collectives
                for g in timeline.traces[rank].groups
                if (g.desc, len(g.members or ())) == (standing.desc, standing.members)
            ]
            if any(track is not None and track.last_seq >= standing.seq for track in tracks):
                return True
    return False


def _odd(
    present: tuple[int, ...], absent: tuple[int, ...], usual: int, by: int, group: GroupTimeline, timeline: Timeline
) -> tuple[int, ...]:
    """The odd ranks, by the number of calls made in this group and in parallel ones when they reached the last call of all."""
    votes = Counter({usual: len(present), usual - by: len(absent)})
    votes.update(_counts_beside(group, _last_call(present[0], timeline), timeline))
    more, fewer = votes[usual], votes[usual - by]
    unknown = len(group.group.ranks) - len(present) - len(absent) + (0 if group.group.declared else timeline.unseen)
    if more > fewer + unknown:
        return absent
    return present if fewer > more + unknown else ()


def _counts_beside(group: GroupTimeline, last: _Last | None, timeline: Timeline) -> Iterator[int]:
    """Numbers of calls of the members of parallel groups that are in the same call."""
    for parallel in _beside(group, timeline):
        for rank in parallel.group.ranks:
            track, theirs = parallel.track(rank), _last_call(rank, timeline)
            if track and theirs is not None and last is not None and theirs.standing == last.standing:
                yield track.last_seq


# ---------------------------------------------------------------------------------------------------------------------
# The same for dumps without entries: `pg_status` still counts how many calls each rank has made and finished in each group.
#
# A counter is a position. A rank that has finished all its calls in every group, and has made fewer calls than those who wait
# in one of its groups, is outside communication. A rank that has calls pending waits itself, however few they are.


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
    """The call that some ranks have not reached although they have nothing pending in any group. None if several calls miss different
    ranks: any of them may have come first.
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
