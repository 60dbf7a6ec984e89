"""A ring in which some began their next round while the others issued a call that none of them had issued before."""

import numpy as np

from forkpoint.align.slots import sequence
from forkpoint.diverge.waits import Wait, Waits
from forkpoint.model.timeline import GroupTimeline, Timeline
from forkpoint.model.trace import Tables, Tokens


def began_again(cycle: tuple[int, ...], waits: Waits, timeline: Timeline) -> bool:
    """One side skipped or added a call; it is no other order of the same calls.

    Who stands again in a call that both sides made before, from the very same lines, came round its loop to it. The
    others wait in a call that nobody in the ring made before. Had it only another place in the round, those who came
    round would have passed that place, and made it there.
    """
    if any(waits[r].position.channel or not waits[r].position.op.stack for r in cycle):
        return False  # without stacks the same sizes may be another call
    made = {r: _made_before(r, cycle, waits[r], timeline) for r in cycle}
    new = [r for r in cycle if not made[r]]
    again = [r for r in cycle if {r, *(a for a in waits[r].held.absent if a in cycle)} <= made[r]]
    return bool(new) and bool(again) and len(new) + len(again) == len(cycle)


def _made_before(rank: int, cycle: tuple[int, ...], wait: Wait, timeline: Timeline) -> set[int]:
    """Ranks of the ring that had made, before this slot, the call in which the rank waits."""
    group, seq = timeline.of_group(wait.position.group), wait.position.op.seq
    call = _calls(group, rank, timeline.tables, seq, seq + 1)
    return {r for r in cycle if np.isin(call, _calls(group, r, timeline.tables, 0, seq)).any()}


def _calls(group: GroupTimeline, rank: int, tables: Tables, since: int, until: int) -> Tokens:
    """What the rank called from slot `since` on and before `until`, as far as its dump still holds it."""
    track = group.track(rank)
    if track is None:
        return np.zeros(0, np.uint64)
    held = sequence(track, tables)
    return held.calls[max(since - held.first, 0) : max(until - held.first, 0)]
