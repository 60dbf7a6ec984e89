"""How far apart hosts' clocks are, from what ranks did together.

A collective of a synchronising kind ends on no rank before every rank has issued it. So if rank 1 issued seq 7 at 10:05
on its clock, and rank 0 saw seq 7 end at 10:00 on its own, rank 1's clock is at least five minutes ahead. The same with
the ranks exchanged gives the other bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from forkpoint.align.groups import SYNCHRONISING
from forkpoint.model.op import OpState
from forkpoint.model.timeline import GroupTimeline, Timeline

COMPARABLE = 10.0
"""Seconds that two clocks may be apart and still order what happened on them. Timeouts are tens of seconds or more, so
what led to one and what followed it stay apart."""
_TRIES = 8
_NS = 1e9


@dataclass(frozen=True, slots=True)
class _Seen:
    """One rank's word about a group. Its track is looked up again when needed: there may be 100,000 of these."""

    group: GroupTimeline
    rank: int
    done_seq: int
    done_at: float

    def issued(self, seq: int) -> float | None:
        track = self.group.track(self.rank)
        assert track is not None  # it told what it saw
        at = int(np.searchsorted(track.recent_seqs, seq))
        if at == len(track.recent_seqs) or track.recent_seqs[at] != seq:
            return None
        return int(track.recent_created_ns[at]) / _NS


def join_clocks(timeline: Timeline, owners: Mapping[int, str]) -> dict[str, float]:
    """The largest set of clocks that agree: owner -> seconds by which it may be off that of the first one."""
    groups = [seen for group in timeline.groups if (seen := _seen(group))]
    ranks = sorted({s.rank for seen in groups for s in seen}) or sorted(r for r in timeline.traces if r in owners)
    best: dict[str, float] = {}
    tried: set[str] = set()
    for rank in ranks:
        if owners[rank] in tried or len(tried) >= _TRIES:
            continue
        joined = _grow(owners[rank], groups, owners)
        tried |= joined.keys()
        if _size(joined, owners) > _size(best, owners):
            best = joined
    return best


def _size(joined: dict[str, float], owners: Mapping[int, str]) -> int:
    return sum(owner in joined for owner in owners.values())


def _grow(start: str, groups: list[list[_Seen]], owners: Mapping[int, str]) -> dict[str, float]:
    joined = {start: 0.0}
    grew = True
    while grew:
        grew = False
        for seen in groups:
            known = [s for s in seen if owners[s.rank] in joined]
            if not known or len(known) == len(seen):
                continue
            pivot = min(known, key=lambda s: (joined[owners[s.rank]], s.rank))
            for one in seen:
                apart = _apart(pivot, one) if owners[one.rank] not in joined else None
                if apart is not None and apart + joined[owners[pivot.rank]] <= COMPARABLE:
                    joined[owners[one.rank]] = apart + joined[owners[pivot.rank]]
                    grew = True
    return joined


def _apart(one: _Seen, other: _Seen) -> float | None:
    """The most that the two clocks can differ. None: no bound, or bounds that contradict (a clock was set)."""
    other_issued, one_issued = other.issued(one.done_seq), one.issued(other.done_seq)
    if other_issued is None or one_issued is None:
        return None
    least, most = other_issued - one.done_at, other.done_at - one_issued
    return max(abs(least), abs(most)) if least <= most else None


def _seen(group: GroupTimeline) -> list[_Seen]:
    found: list[_Seen] = []
    for rank in group.traces:
        track = group.track(rank)
        done = track.last_done if track else None
        if track is None or done is None or done.state is not OpState.COMPLETED or not done.completed_ns:
            continue
        if done.signatures[0].op in SYNCHRONISING:
            found.append(_Seen(group, rank, done.seq, done.completed_ns / _NS))
    return found
