"""Comparing the calls of two sides of a divergence: the same line of code, the same ops in another order?"""

from collections import Counter

from forkpoint.align.slots import Sequence, sequence
from forkpoint.detectors.cite import group_of
from forkpoint.model.divergence import Cohort, Divergence
from forkpoint.model.frames import in_side_thread, in_two_threads, user_frames
from forkpoint.model.incident import Incident
from forkpoint.model.op import Frame
from forkpoint.model.timeline import GroupTimeline

REORDER_WINDOW = 64
"""Ops looked through for the same calls in another order: more than one loop over parameters or keys needs."""


def issuing(divergence: Divergence) -> tuple[Cohort, ...]:
    """Cohorts that issued an op in the slot."""
    return tuple(c for c in divergence.cohorts if c.op is not None)


def same_op(divergence: Divergence) -> bool:
    return len({c.op for c in issuing(divergence)}) == 1


def same_call_site(divergence: Divergence) -> bool | None:
    """All sides called from the same user lines. None: no stacks to tell, and no other thread either."""
    stacks = [c.stack for c in issuing(divergence)]
    if any(s is None for s in stacks):
        # DDP's reducer issues from the autograd thread; other threads go by names that differ by chance.
        from_backward = {(c.thread or "").startswith("pt_autograd") for c in issuing(divergence)}
        return False if len(from_backward) > 1 else None
    return len({(tuple((f.filename, f.line) for f in user_frames(s)), bool(s)) for s in stacks}) == 1


def is_of_two_threads(divergence: Divergence, incident: Incident) -> bool:
    """One side's call comes from a thread that the program started, the other's from another one, and ranks of both sides
    have issued the first from that place: two threads share the group, and nothing orders their calls.
    """
    parted = [c for c in issuing(divergence) if c.stack]
    if not in_two_threads(c.stack for c in parted):
        return False
    side = [c for c in parted if c.stack and in_side_thread(c.stack)]
    return any(
        _have_called(user_frames(c.stack)[:1], set(divergence.group.ranks) - set(c.ranks), incident) for c in side
    )


def _have_called(site: tuple[Frame, ...], ranks: set[int], incident: Incident) -> bool:
    timeline = incident.timeline
    keys = {int(key) for rank in ranks if rank in timeline.traces for key in timeline.traces[rank].recent_stacks}
    issued = (timeline.tables.stacks.get(key) for key in keys)
    standing = (stack for live in incident.capture.stacks if live.rank in ranks for _, stack in live.others)
    return bool(site) and any(user_frames(stack)[:1] == site for stack in (*issued, *standing))


def holds_past(divergence: Divergence, incident: Incident) -> bool:
    """Dumps of active ops alone show neither what came before nor whether it came in order."""
    traces = incident.timeline.traces
    return not any(traces[rank].is_partial for side in divergence.sides for rank in side if rank in traces)


def is_reordered(divergence: Divergence, incident: Incident) -> bool:
    """From the slot on, both sides issued the same calls in another order.

    One call site that so far always issued one kind of op and now another is no reordering: its arguments changed.
    """
    seq = divergence.first_visible_seq
    if divergence.channel is not None or seq is None or divergence.shift is not None:
        return False
    if any(c.stack is None for c in issuing(divergence)) or not holds_past(divergence, incident):
        return False  # without stacks equal sizes are all there is to go by, and they repeat
    group = group_of(divergence, incident)
    held = [_held(side[0], group, incident) for side in divergence.sides if side]
    if len(held) < 2 or any(h is None or _changed_arguments(h, seq) for h in held):
        return False
    tokens = [h.match[seq - h.first :][:REORDER_WINDOW].tolist() for h in held if h]
    longest = max(tokens, key=len)
    others = [t for t in tokens if t is not longest]
    return any(_permuted(longest, t) for t in others) and all(_is_part(t, longest) for t in others)


def may_be_reordered(divergence: Divergence, incident: Incident) -> bool:
    """A side's op is one that another side issues later: with too few ops to tell, the order may be what differs."""
    seq = divergence.first_visible_seq
    if divergence.channel is not None or seq is None:
        return False
    group = group_of(divergence, incident)
    held = [h for side in divergence.sides if side and (h := _held(side[0], group, incident))]
    if any(_changed_arguments(h, seq) for h in held):
        return False
    firsts = [int(h.match[seq - h.first]) for h in held]
    later = [set(h.match[seq - h.first + 1 :][:REORDER_WINDOW].tolist()) for h in held]
    return any(first in rest for i, first in enumerate(firsts) for j, rest in enumerate(later) if i != j)


def _held(rank: int, group: GroupTimeline, incident: Incident) -> Sequence | None:
    track = group.track(rank)
    return sequence(track, incident.timeline.tables) if track else None


def _changed_arguments(held: Sequence, seq: int) -> bool:
    """Before `seq` its call site issued one kind of op only, and several times."""
    at = seq - held.first
    earlier = held.match[:at][held.stack[:at] == held.stack[at]]
    return len(earlier) > 1 and len(set(earlier.tolist())) == 1


def _is_part(some: list[int], whole: list[int]) -> bool:
    """A side that was held earlier issued only a part, but nothing else."""
    return Counter(some[: len(whole)]) <= Counter(whole)


def _permuted(one: list[int], other: list[int]) -> bool:
    """A first part of both, of two ops or more, holds the same calls."""
    return any(
        sorted(one[:length]) == sorted(other[:length]) and one[:length] != other[:length]
        for length in range(2, min(len(one), len(other)) + 1)
    )
