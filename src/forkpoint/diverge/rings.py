"""Rings of waits: which rank left the usual order, and did it skip an op or issue it somewhere else?"""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from forkpoint.diverge.habits import PROOF, keeps_habit, usual_place
from forkpoint.diverge.replicas import MAX_MORE, Replicas
from forkpoint.diverge.slots import sequence
from forkpoint.diverge.waits import Wait, Waits, who_misses
from forkpoint.model.entries import Tables
from forkpoint.model.frames import find_parting, in_two_threads, same_function, user_frames
from forkpoint.model.op import Tokens
from forkpoint.model.timeline import GroupTimeline, Timeline

# ---------------------------------------------------------------------------------------------------------------------
# A ring in which some ranks began their next iteration while the others issued a call that no rank had issued before.


def began_again(cycle: tuple[int, ...], waits: Waits, timeline: Timeline) -> bool:
    """One side skipped or added a call; it is not the same calls in another order.

    A rank that waits in a call that both sides made before, from the same lines, has come around its loop. The others wait
    in a call that nobody in the ring made before. If the two sides made that call at different places of the loop, the
    ranks that came around would have passed its place and made it.
    """
    if any(waits[r].position.channel or not waits[r].position.op.stack for r in cycle):
        return False  # without stacks, equal sizes may be another call
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
    """The rank's calls in slots `since` up to, but not including, `until`, as far as its dump holds them."""
    track = group.track(rank)
    if track is None:
        return np.zeros(0, np.uint64)
    held = sequence(track, tables)
    return held.calls[max(since - held.first, 0) : max(until - held.first, 0)]


def is_permuted(cycle: tuple[int, ...], waits: Waits, timeline: Timeline) -> bool:
    """Every rank of the ring has issued all calls in which the others wait, and after that all of them issued one more equal
    call. A rank that had skipped a call would reach that later call before it came around to the skipped one again.
    """
    inside = _inside(cycle, waits)
    if any(waits[r].held.absent or waits[r].held.unknown for r in inside):
        return False
    ring = {_slot(waits[r]) for r in inside}
    after = [_issued_after(r, ring, timeline) for r in cycle]
    return bool(set[object].intersection(*after))


def odd_by_habit(cycle: tuple[int, ...], waits: Waits, timeline: Timeline) -> tuple[int, ...]:
    """The minority that broke its own pattern; else the ranks that issued two calls in another order than most ranks that
    issued both; else the smaller side.
    """
    inside = _inside(cycle, waits)
    broke = _broke_habit(inside, waits, timeline)
    if broke:
        return broke if 2 * len(broke) < len(inside) else ()
    if is_permuted(cycle, waits, timeline) and (odd := _odd_in_order(inside, waits, timeline)):
        return odd
    return _smaller_side(inside, waits, timeline)


def _issued_after(rank: int, ring: set[tuple[object, ...]], timeline: Timeline) -> set[object]:
    """The rank's pending collectives after its calls of the ring, in a form that is comparable between parallel groups."""
    pending = timeline.positions[rank]
    last = max((p.op.record_id for p in pending if (p.group, p.channel, p.op.seq) in ring), default=-1)
    after = [p for p in pending if p.op.record_id > last and not p.channel]
    return {(p.group.desc, len(p.group.ranks), p.op.seq, p.op.signatures) for p in after}


def is_one_thread(cycle: tuple[int, ...], waits: Waits) -> bool:
    """The ring's calls do not come from different threads, whose order is left to chance."""
    return not in_two_threads(waits[r].position.op.stack for r in _inside(cycle, waits))


def never_issued(cycle: tuple[int, ...], waits: Waits, unseen: int) -> tuple[int, ...]:
    """The one rank of the ring that is absent from one of its slots, if no other rank is.

    It must also be outnumbered. Ranks that wait in the same slot as this one may be right and only further ahead; and of
    two ranks that wait for each other, either may be wrong.
    """
    absent = {r for waiting in cycle for r in waits[waiting].held.absent if r in cycle}
    held = {r for waiting in cycle for r in waits[waiting].held.busy if r in cycle}
    if len(absent) != 1 or held != set(cycle) - absent:
        return ()
    (rank,) = absent
    own = waits[rank].held
    busy = frozenset(own.busy)
    did_both = [r for r in who_misses(rank, waits) if r in busy]
    return (rank,) if len(did_both) > len(waits.beside(rank)) + len(own.unknown) + unseen else ()


def left_order(cycle: tuple[int, ...], odd: tuple[int, ...], waits: Waits, timeline: Timeline) -> bool:
    """The odd ranks do not just issue the others' op later: they skipped it, or are in another part of the program.

    Skipped: the rank made its call before, from the same line, and the call that used to come first is left out. Another
    part of the program: it never made this call before. A known call from a new line is the same work in another order,
    unless something shows otherwise.
    """
    if not is_one_thread(cycle, waits):
        return False
    if never_issued(cycle, waits, timeline.unseen):
        return True
    broke = odd or _broke_habit(cycle, waits, timeline)
    if not broke:  # an order that worked before does not deadlock by itself: some rank is off by some ops
        kept = all(keeps_habit(timeline.traces[r], waits[r].position.op.record_id) for r in cycle)
        return kept or began_again(cycle, waits, timeline)
    return all(_left_order(rank, waits[rank], timeline) for rank in broke)


def from_other_sites(cycle: tuple[int, ...], waits: Waits, timeline: Timeline) -> bool:
    """Ranks issued the same slot of the ring from different lines: their programs diverged before, so no order is proven."""
    if not is_one_thread(cycle, waits):
        return False
    ring = {_slot(waits[rank]) for rank in cycle if not waits[rank].position.channel}
    sites: dict[object, set[tuple[str, int]]] = {}
    members = {rank for member in cycle for rank in waits[member].position.group.ranks}
    for rank in members & timeline.positions.keys():
        for position in timeline.positions[rank]:
            slot, frames = (position.group, position.channel, position.op.seq), user_frames(position.op.stack)
            if slot in ring and frames:
                sites.setdefault(slot, set()).add((frames[0].filename, frames[0].line))
    return any(len(places) > 1 for places in sites.values())


def _odd_in_order(inside: list[int], waits: Waits, timeline: Timeline) -> tuple[int, ...]:
    """In a ring of two calls: the minority of those ranks in both groups that waits in the other call than most."""
    slots = {_slot(waits[rank]) for rank in inside}
    groups = [timeline.of_group(waits[rank].position.group) for rank in inside if not waits[rank].position.channel]
    both = [rank for rank in inside if all(rank in group.group.ranks for group in groups)]
    if len(slots) != 2 or len(groups) != len(inside):
        return ()
    first = Counter(_slot(waits[rank]) for rank in both)
    usual, times = first.most_common(1)[0]
    odd = tuple(rank for rank in both if _slot(waits[rank]) != usual)
    return odd if times > len(odd) else ()


def _inside(cycle: tuple[int, ...], waits: Waits) -> list[int]:
    """All ranks that wait in the ring's slots."""
    return sorted({other for rank in cycle for other in waits.beside(rank)})


def _broke_habit(inside: Iterable[int], waits: Waits, timeline: Timeline) -> tuple[int, ...]:
    """Ranks that did something new. If all their replicas did it, too, it is only a part of the program that had not run."""
    entries = {rank: waits.stand(rank).record_id for rank in inside}
    broke = [rank for rank, entry in entries.items() if keeps_habit(timeline.traces[rank], entry) is False]
    replicas = Replicas(timeline)
    return tuple(rank for rank in broke if not replicas.do_the_same(rank, entries[rank]))


def _left_order(rank: int, wait: Wait, timeline: Timeline) -> bool:
    trace = timeline.traces[rank]
    record = wait.position.op.record_id
    usual = usual_place(trace, record)
    if usual is None:
        return False
    at = int(np.flatnonzero(trace.recent_records == record)[0])
    past, now = trace.recent_calls[usual:at].tolist(), trace.recent_calls[at:].tolist()
    if past[0] in now[1:] and not _runs_ahead(past, now):
        return False  # the usual call comes, but later
    if is_made_again(rank, wait, timeline):
        return True
    if not (trace.recent_ops[:at] == trace.recent_ops[at]).any():
        return True
    if trace.recent_stacks[usual] == trace.recent_stacks[at] or from_one_line(rank, wait, timeline):
        return False  # a loop over groups or functions makes all calls from one line: only its order changed
    return bool((trace.recent_calls[:at] == trace.recent_calls[at]).any())


def from_one_line(rank: int, wait: Wait, timeline: Timeline) -> bool:
    """The line that made the rank's usual call made this one, through another function: it takes functions from a list, a set or a
    mapping, whose order may be what differs.
    """
    trace, op = timeline.traces[rank], wait.position.op
    usual = usual_place(trace, op.record_id)
    if usual is None:
        return False
    parting = find_parting(timeline.tables.stacks.get(int(trace.recent_stacks[usual])), op.stack)
    return parting is not None and parting[0] > 0 and not same_function(*parting[1:])


def is_made_again(rank: int, wait: Wait, timeline: Timeline) -> bool:
    """The call is one that the rank made a little before, and it is due again only much later in the round: one call too many is a
    smaller change than a round in which so many calls come later than usual.
    """
    trace, record = timeline.traces[rank], wait.position.op.record_id
    usual = usual_place(trace, record)
    if usual is None:
        return False
    at = int(np.flatnonzero(trace.recent_records == record)[0])
    past, call = trace.recent_calls[usual:at].tolist(), int(trace.recent_calls[at])
    if call not in past:
        return False
    jumped, back = past.index(call), past[::-1].index(call) + 1
    return jumped > MAX_MORE and back < jumped


def _runs_ahead(past: list[int], now: list[int]) -> bool:
    """Its calls match its usual iteration from a later place on, up to and beyond the call that it left out.

    A host that does not wait for its GPU also issues the next iterations, including what it skipped in this one. Swapped
    calls match only up to the late call itself, not beyond.
    """
    wanted = max(PROOF, now.index(past[0], 1) + 2)
    rounds = past * (1 + -(-wanted // len(past)))
    shown = now[:wanted]
    return len(shown) == wanted and any(rounds[by : by + wanted] == shown for by in range(1, len(past)))


def _slot(wait: Wait) -> tuple[object, ...]:
    return (wait.position.group, wait.position.channel, wait.position.op.seq)


def _smaller_side(inside: list[int], waits: Waits, timeline: Timeline) -> tuple[int, ...]:
    """Only for two collectives in groups with the same members, all with dumps: only there is a vote fair."""
    sides: dict[tuple[object, ...], list[int]] = {}
    for rank in inside:
        sides.setdefault(_slot(waits[rank]), []).append(rank)
    members = {waits[r].position.group.ranks for r in inside}
    if any(waits[r].position.channel or waits[r].held.unknown for r in inside):
        return ()
    if len(sides) != 2 or len(members) != 1 or any(r not in timeline.positions for r in next(iter(members))):
        return ()
    small, large = sorted(sides.values(), key=len)
    unseen = 0 if waits[large[0]].position.group.declared else timeline.unseen
    return tuple(small) if len(large) > len(small) + unseen else ()
