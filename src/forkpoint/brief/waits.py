"""The wait graph: who waits in which call, for whom, and the cycle if there is one."""

from collections.abc import Iterator, Sequence
from itertools import chain

from forkpoint.brief.case import Case, Fact, QuestionRefused
from forkpoint.brief.naming import answer, fact, name_group, plain_name
from forkpoint.diverge.waits import find_cycle, find_waits
from forkpoint.judge.hypotheses.repairs import recorded_job
from forkpoint.model.world import name_ranks
from forkpoint.replay import Slot

_RANGES = 4
_IN_RING = 16


def show_waits(case: Case) -> Sequence[Fact]:
    job = recorded_job(case.incident)
    if not job.slots:
        raise QuestionRefused("no dump shows a rank that waits; ask threads, progress or log_lines")
    return answer(chain(_of_ring(case), _of_slots(case, job.slots), _of_free(case)), "ask table for one group")


def _of_ring(case: Case) -> Iterator[Fact]:
    ring = find_cycle(find_waits(case.incident.timeline))
    if ring:
        shown = " -> ".join(map(str, ring[:_IN_RING])) + (" -> ..." if len(ring) > _IN_RING else f" -> {ring[0]}")
        yield fact(case, "wait graph", f"a cycle of {len(ring)} ranks, each waits for the next: {shown}")
    else:
        yield fact(case, "wait graph", "no cycle, as far as dumps show")


def _of_slots(case: Case, slots: Sequence[Slot]) -> Iterator[Fact]:
    """Calls with missing ranks first; similar calls in many groups share a line."""
    alike: dict[tuple[object, ...], list[Slot]] = {}
    for slot in slots:
        wants = (bool(slot.absent), bool(slot.busy), bool(slot.unknown), slot.misfit)
        alike.setdefault((str(slot.group), bool(slot.channel), slot.seq, wants), []).append(slot)
    ordered = sorted(alike.values(), key=lambda some: (not some[0].absent, not some[0].unknown, some[0].seq))
    for first, *more in ordered:
        ranks = frozenset[int]().union(first.waiting, *(slot.waiting for slot in more))
        place = (
            f"{plain_name(str(first.group))} message {first.seq} of {_way(first)}"
            if first.channel
            else _name(case, first)
        )
        likewise = f" and {len(more)} more like it" if more else ""
        yield fact(case, f"{place}{likewise}", f"{name_ranks(ranks, _RANGES)} wait: {_tell_held(first, more)}")


def _name(case: Case, slot: Slot) -> str:
    return f"{name_group(slot.group, case.incident.timeline)} seq {slot.seq}"


def _way(slot: Slot) -> str:
    return f"{slot.channel[0]}->{slot.channel[1]}" if slot.channel else ""


def _tell_held(first: Slot, more: Sequence[Slot]) -> str:
    def everywhere(part: str) -> frozenset[int]:
        return frozenset[int]().union(*(getattr(slot, part) for slot in (first, *more)))

    told = [
        f"{name_ranks(ranks, _RANGES)} {what}"
        for part, what in (
            ("absent", "did not call it"),
            ("busy", "called it, but still in an earlier call"),
            ("unknown", "unknown (no dump)"),
        )
        if (ranks := everywhere(part))
    ]
    told += ["the ranks' arguments do not match"] if first.misfit else []
    return "; ".join(told) or "all have called it, and it does not finish"


def _of_free(case: Case) -> Iterator[Fact]:
    job = recorded_job(case.incident)
    if job.free:
        yield fact(case, "wait graph", f"{name_ranks(job.free, _RANGES)}: no pending call, but others wait for it")
    if job.elsewhere:
        yield fact(
            case, "wait graph", f"{name_ranks(job.elsewhere, _RANGES)}: their stacks are in a call that no dump records"
        )
