"""A ring of waits: who in it left the usual order, and did it skip an op or issue it in another place?"""

from collections.abc import Iterable

import numpy as np

from forkpoint.diverge.history import keeps_habit, usual_place
from forkpoint.diverge.waits import Wait
from forkpoint.model.timeline import Timeline


def odd_in_cycle(cycle: tuple[int, ...], waits: dict[int, Wait], timeline: Timeline) -> tuple[int, ...]:
    """Those that never issued what the others wait in, though the others did issue what they wait in; else those few
    that broke their own habit; else the smaller side.
    """
    missing = never_issued(cycle, waits)
    if missing:
        return missing
    inside = _inside(cycle, waits)
    broke = _broke_habit(inside, waits, timeline)
    if broke:
        return broke if 2 * len(broke) < len(inside) else ()
    return _smaller_side(inside, waits, timeline)


def never_issued(cycle: tuple[int, ...], waits: dict[int, Wait]) -> tuple[int, ...]:
    """The one rank of the ring that is absent from a slot of it, if the rest is absent from none."""
    absent = {r for waiting in cycle for r in waits[waiting].absent if r in cycle}
    held = {r for waiting in cycle for r in waits[waiting].busy if r in cycle}
    return tuple(absent) if len(absent) == 1 and held == set(cycle) - absent else ()


def left_order(cycle: tuple[int, ...], odd: tuple[int, ...], waits: dict[int, Wait], timeline: Timeline) -> bool:
    """A rank does not just issue the others' op later: it skipped it, or is somewhere else altogether.

    Known to them from the same line, with the op that used to come before it left out: skipped. Never issued before:
    somewhere else. A known op from a new line is the same work in another order, as long as nothing tells otherwise.
    """
    if never_issued(cycle, waits):
        return True
    broke = odd or _broke_habit(cycle, waits, timeline)
    if not broke:  # an order that worked before does not deadlock by itself: somebody is off by some ops
        return all(keeps_habit(timeline.traces[r], waits[r].position.op.record_id) for r in cycle)
    return all(_left_order(rank, waits[rank], timeline) for rank in broke)


def _inside(cycle: tuple[int, ...], waits: dict[int, Wait]) -> list[int]:
    """All ranks that stand in the ring's slots."""
    slots = {_slot(waits[r]) for r in cycle}
    return [r for r, wait in sorted(waits.items()) if _slot(wait) in slots]


def _broke_habit(inside: Iterable[int], waits: dict[int, Wait], timeline: Timeline) -> tuple[int, ...]:
    return tuple(r for r in inside if keeps_habit(timeline.traces[r], waits[r].position.op.record_id) is False)


def _left_order(rank: int, wait: Wait, timeline: Timeline) -> bool:
    trace = timeline.traces[rank]
    record = wait.position.op.record_id
    usual = usual_place(trace, record)
    if usual is None:
        return False
    at = int(np.flatnonzero(trace.recent_records == record)[0])
    if (trace.recent_calls[at + 1 :] == trace.recent_calls[usual]).any():
        return False  # the usual call comes, only later
    if not (trace.recent_ops[:at] == trace.recent_ops[at]).any():
        return True
    if trace.recent_stacks[usual] == trace.recent_stacks[at]:
        return False  # a loop over groups calls them all from one line: its order changed
    return bool((trace.recent_calls[:at] == trace.recent_calls[at]).any())


def _slot(wait: Wait) -> tuple[object, ...]:
    return (wait.position.group, wait.position.channel, wait.position.op.seq)


def _smaller_side(inside: list[int], waits: dict[int, Wait], timeline: Timeline) -> tuple[int, ...]:
    """Only between two collectives of groups with the same members, all of them seen: there a vote is fair."""
    sides: dict[tuple[object, ...], list[int]] = {}
    for rank in inside:
        sides.setdefault(_slot(waits[rank]), []).append(rank)
    members = {waits[r].position.group.ranks for r in inside}
    if any(waits[r].position.channel for r in inside):
        return ()
    if len(sides) != 2 or len(members) != 1 or any(r not in timeline.positions for r in next(iter(members))):
        return ()
    small, large = sorted(sides.values(), key=len)
    return tuple(small) if len(small) < len(large) else ()
