"""Ranks without a complete dump that nothing recorded keeps from the call in which others wait for them.

Between two calls of one group, a rank makes the calls that its peers in that group made between them. If all of these
are known to have finished with the rank, it cannot be blocked in any of them: whoever blocked it would have to be
itself.
"""

from collections.abc import Iterator

import numpy as np

from forkpoint.model.incident import Incident
from forkpoint.model.op import SYNCHRONISING
from forkpoint.model.timeline import GroupTimeline, Timeline
from forkpoint.model.trace import GroupTrace, RankTrace
from forkpoint.replay import Job, Slot

_Call = tuple[str, int]
"""The description of a group, and the number of a collective in it: equal for all ranks at one place of the program."""


_MOST = 16
"""Maximum number of ranks missing in one call to look at: of more, one cannot be singled out."""


def find_unhindered(job: Job, incident: Incident) -> frozenset[int]:
    """For calls in which only such ranks are missing: one of them did not come, or came with another call. No other
    rank can be to blame, because it would have to block them.
    """
    found: set[int] = set()
    for slot in job.slots:
        only_unknown = not slot.absent and not slot.busy and 0 < len(slot.unknown) <= _MOST
        if only_unknown and all(_may_come(rank, slot, incident.timeline) for rank in sorted(slot.unknown)):
            found |= slot.unknown
    return frozenset(found)


def _may_come(rank: int, slot: Slot, timeline: Timeline) -> bool:
    """Every call that a peer made since the group's last one is known to have finished with this rank."""
    if slot.channel:
        return False  # and a group that only sends has no timeline
    group = timeline.of_group(slot.group)
    if group.has_messages or not _has_parallel(group, timeline):
        return False  # its members are at different stages of a pipeline, or the group is everything: they make different calls
    between = _calls_between(min(slot.waiting), slot, timeline)
    return between is not None and all(_is_finished(call, rank, timeline) for call in between)


def _has_parallel(group: GroupTimeline, timeline: Timeline) -> bool:
    return any(g.group.is_parallel_to(group.group) for g in timeline.groups)


def _calls_between(peer: int, slot: Slot, timeline: Timeline) -> list[_Call] | None:
    """What this rank called between the slot before and this one; None if its dump does not show it, or if there are
    messages.
    """
    trace = timeline.traces[peer]
    own = next((n for n, g in enumerate(trace.groups) if g.name == slot.group.name), None)
    record = next((s.record_id for s in timeline.stands[peer] if (s.group, s.seq) == (slot.group, slot.seq)), None)
    at = np.flatnonzero(trace.recent_records == record) if record is not None else np.zeros(0, np.int64)
    before = np.flatnonzero(trace.recent_groups[: int(at[0])] == own) if at.size else at
    if not before.size:
        return None
    places = range(int(before[-1]) + 1, int(at[0]))
    calls = [_call(trace, place, timeline) for place in places]
    return None if None in calls else [call for call in calls if call]


def _call(trace: RankTrace, place: int, timeline: Timeline) -> _Call | None:
    called = timeline.tables.signatures.get(int(trace.recent_matches[place]), ())
    group = trace.groups[int(trace.recent_groups[place])]
    track = group.collectives
    if not called or track is None or not all(s.op in SYNCHRONISING or _is_even(group, s.op) for s in called):
        return None
    later = int((trace.recent_groups[place + 1 :] == trace.recent_groups[place]).sum())
    return group.desc, track.last_seq - later


def _is_even(group: GroupTrace, op: str) -> bool:
    """An all_to_all that always sent and received one amount: then every member waited for every other, judging by the
    amounts.
    """
    amounts = group.volumes if op.startswith("all_to_all") else None
    return amounts is not None and np.unique(np.concatenate([amounts.sent, amounts.received])).size == 1


def _is_finished(call: _Call, rank: int, timeline: Timeline) -> bool:
    """A member of the rank's own group of this kind has finished the call, which is impossible without this rank."""
    return any(_finished(group) >= call[1] for group in _groups_of(rank, call[0], timeline))


def _groups_of(rank: int, desc: str, timeline: Timeline) -> Iterator[GroupTimeline]:
    return (g for g in timeline.groups if g.group.desc == desc and rank in g.group.ranks)


def _finished(group: GroupTimeline) -> int:
    tracks = (group.track(rank) for _, rank in group.kinds)
    return max((op.seq for track in tracks if track and (op := track.last_done)), default=0)
