"""How far apart hosts' clocks are, from what ranks did together.

A collective of a synchronising kind ends on no rank before every rank has issued it. So if rank 1 issued seq 7 at 10:05
on its clock, and rank 0 saw seq 7 end at 10:00 on its own, rank 1's clock is at least five minutes ahead. The same with
the ranks exchanged gives the other bound.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from forkpoint.model.op import OpState
from forkpoint.model.op_names import SYNCHRONISING
from forkpoint.model.timeline import GroupTimeline, Timeline

COMPARABLE = 10.0
"""Seconds that two clocks may be apart and still order what happened on them. Timeouts are tens of seconds or more, so
what led to one and what followed it stay apart."""
_TRIES = 8
_NS = 1e9


@dataclass(frozen=True, slots=True)
class _Group:
    """A group with the last op that its members saw done, by kind of track: those ops that end nowhere before all issued."""

    timeline: GroupTimeline
    done: dict[int, int]

    def seen(self) -> Iterator["_Seen"]:
        """One after another: there may be hundreds of thousands."""
        told = ((rank, kind, ns) for rank, kind, ns in self.timeline.traces.completed() if ns and kind in self.done)
        return (_Seen(self.timeline, rank, self.done[kind], ns / _NS) for rank, kind, ns in told)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One rank's word about a group."""

    group: GroupTimeline
    rank: int
    done_seq: int
    done_at: float

    def issued(self, seq: int) -> float | None:
        track = self.group.track(self.rank)
        assert track is not None  # it told what it saw
        created = track.created(seq)
        return None if created is None else created / _NS


def join_clocks(timeline: Timeline, owners: Mapping[int, str]) -> dict[str, float]:
    """The largest set of clocks that agree: owner -> seconds by which it may be off that of the first one."""
    groups = [_Group(group, done) for group in timeline.groups if (done := _done(group))]
    told = {s.rank for group in groups for s in group.seen()}
    ranks = sorted(told) or sorted(r for r in timeline.traces if r in owners)
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


def _grow(start: str, groups: list[_Group], owners: Mapping[int, str]) -> dict[str, float]:
    joined = {start: 0.0}
    grew = True
    while grew:
        before = len(joined)
        for group in groups:
            known = sum(owners[rank] in joined for rank in group.timeline.traces)
            if 0 < known < len(group.timeline.traces):
                _join_members(group, joined, owners)
        grew = len(joined) > before
    return joined


def _join_members(group: _Group, joined: dict[str, float], owners: Mapping[int, str]) -> None:
    """Those whose clocks are bounded by that of the member which is known best."""
    known = (s for s in group.seen() if owners[s.rank] in joined)
    pivot = min(known, key=lambda s: (joined[owners[s.rank]], s.rank), default=None)
    if pivot is None:
        return
    issued = {seq: pivot.issued(seq) for seq in group.done.values()}
    for one in group.seen():
        if owners[one.rank] in joined:
            continue
        apart = _apart(pivot, one, issued[one.done_seq])
        if apart is not None and apart + joined[owners[pivot.rank]] <= COMPARABLE:
            joined[owners[one.rank]] = apart + joined[owners[pivot.rank]]


def _apart(pivot: _Seen, other: _Seen, pivot_issued: float | None) -> float | None:
    """The most that the two clocks can differ. None: no bound, or bounds that contradict (a clock was set)."""
    other_issued = other.issued(pivot.done_seq)
    if other_issued is None or pivot_issued is None:
        return None
    least, most = other_issued - pivot.done_at, other.done_at - pivot_issued
    return max(abs(least), abs(most)) if least <= most else None


def _done(group: GroupTimeline) -> dict[int, int]:
    found: dict[int, int] = {}
    for kind, rank in group.kinds:
        track = group.track(rank)
        done = track.last_done if track else None
        if done and done.state is OpState.COMPLETED and done.signatures[0].op in SYNCHRONISING:
            found[kind] = done.seq
    return found
