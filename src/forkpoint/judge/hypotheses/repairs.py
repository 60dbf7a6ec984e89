"""Each cause implies a repair: a change with which the recorded job would have continued. Finds that repair and replays
it.
"""

from msgspec.structs import replace

from forkpoint.diverge.waits import Waits, find_waits
from forkpoint.judge.facts.calls import (
    find_beside,
    holds_past,
    is_of_two_threads,
    is_reordered,
    same_call_site,
    same_op,
)
from forkpoint.judge.facts.departures import find_departed
from forkpoint.judge.facts.older_dumps import have_gone_on, says_nothing
from forkpoint.judge.facts.refusal import Refused, find_refusal
from forkpoint.judge.facts.stacks import find_standings, is_communicating
from forkpoint.judge.facts.symptom import hang_is_shown, stands_still
from forkpoint.model.incident import Divergence, Incident, PartingKind, fact
from forkpoint.model.verdict import Cause, Finding
from forkpoint.replay import Job, Repair, RepairKind, Replay, replay
from forkpoint.replay.job import Slot

_AWAY = frozenset({Cause.HOST_STALL, Cause.RANK_LOST, Cause.NEVER_JOINED})
_SHOWN_OTHERWISE = frozenset({Cause.RANK_LOST, Cause.NEVER_JOINED, Cause.METADATA_MISMATCH})
"""Their evidence is what ranks and launchers logged, not only a wait."""
_NOT_REPLAYED = frozenset({Cause.SILENT_CORRUPTION, Cause.HEALTHY, Cause.INCONCLUSIVE})


@fact
def recorded_job(incident: Incident) -> Job:
    """The end of the job as the dumps show it; None if the job continued after them."""
    waits = Waits(incident.timeline, ()) if have_gone_on(incident) else find_waits(incident.timeline)
    return Job.of(incident.timeline, waits, incident.divergences, _in_unrecorded_calls(waits, incident))


def _in_unrecorded_calls(waits: Waits, incident: Incident) -> frozenset[int]:
    """Ranks with nothing pending whose stack, or the traceback that ended their call, is in a communication call that
    their dump does not hold.
    """
    seen = {rank: standing for rank, standing in find_standings(incident).items() if rank not in waits}
    return frozenset(rank for rank, standing in seen.items() if is_communicating(standing.stack))


def find_replay(
    cause: Cause, ranks: tuple[int, ...], divergence: Divergence | None, incident: Incident
) -> tuple[Repair, Replay] | None:
    """The smallest repair that the claim assumes, replayed. None if no recorded call shows where ranks stopped."""
    job = recorded_job(incident)
    recorded = divergence is None or _is_recorded(divergence, incident)
    if not job.slots or not recorded or cause in _NOT_REPLAYED:
        return None
    if divergence is None and incident.divergence is not None and says_nothing(incident.divergence, incident):
        return None  # the dumps are older than what is claimed
    beside = frozenset((d.group, d.seq) for d in (find_beside(divergence, incident) if divergence else ()))
    if cause is Cause.TRANSPORT:
        beside = frozenset((slot.group, slot.seq) for slot in find_stuck_beside(divergence, incident))
    supposed = _supposed(cause, ranks, divergence, job)
    supposed += [replace(repair, beside=beside) for repair in supposed if beside and repair.group is not None]
    tried = [(repair, replay(job, repair)) for repair in supposed]
    return min(tried, key=lambda one: (not one[1].explains, one[1].cost, len(one[0].ranks)), default=None)


def find_stuck_beside(divergence: Divergence | None, incident: Incident) -> tuple[Slot, ...]:
    """Calls of parallel groups that do not finish either, at the same number, although all of their members came: one
    link may carry several groups, whereas a GPU blocks only its own.
    """
    if divergence is None or divergence.how is not PartingKind.STUCK or divergence.channel is not None:
        return ()
    alike = (divergence.group.desc, divergence.seq)
    return tuple(
        slot
        for slot in recorded_job(incident).slots
        if slot.group != divergence.group and not slot.missing and not slot.busy and not slot.misfit
        if slot.channel is None and (slot.group.desc, slot.seq) == alike
    )


def is_explained(finding: Finding, incident: Incident) -> bool:
    """It cites evidence, it assumes nothing that the records exclude, and replay does not refute it."""
    cause, ranks, divergence = finding.cause, finding.suspects, finding.divergence
    if not finding.evidence or not may_be(cause, ranks, divergence, incident):
        return False
    found = find_replay(cause, ranks, divergence, incident)
    return found is None or found[1].explains


def may_be(cause: Cause, ranks: tuple[int, ...], divergence: Divergence | None, incident: Incident) -> bool:
    """The records do not exclude what the repair assumes, and show that ranks stopped."""
    if divergence is not None and _is_replayed(cause, divergence, incident) and cause not in _SHOWN_OTHERWISE:
        shown = hang_is_shown(incident) or stands_still(incident)
        if divergence.how in (PartingKind.ABSENCE, PartingKind.STUCK) and not shown:
            return False
        if is_ring_in_flight(divergence, incident) and not shown:
            return False
    return not is_excluded(cause, ranks, divergence, incident)


def is_ring_in_flight(divergence: Divergence, incident: Incident) -> bool:
    """Dumps of a running job, taken one after another, can show rings of messages that never existed; here nothing else
    indicates a hang.
    """
    in_messages = divergence.how is PartingKind.CYCLE and divergence.channel is not None
    return in_messages and bool(incident.capture.logs) and not incident.capture.stacks


def is_excluded(cause: Cause, ranks: tuple[int, ...], divergence: Divergence | None, incident: Incident) -> bool:
    """The records exclude what the repair assumes. Each check requires no more than its repair would change."""
    if divergence is None or not _is_replayed(cause, divergence, incident):
        return False
    if divergence.how is PartingKind.METADATA:
        return not _may_differ_so(cause, divergence, incident)
    waits = divergence.how in (PartingKind.ABSENCE, PartingKind.STUCK)
    return waits and not _may_be_away(cause, ranks, divergence, incident)


def _is_replayed(cause: Cause, divergence: Divergence | None, incident: Incident) -> bool:
    return cause not in _NOT_REPLAYED and divergence is not None and _is_recorded(divergence, incident)


def _may_differ_so(cause: Cause, divergence: Divergence, incident: Incident) -> bool:
    """Other arguments: the same call from the same line. Another order: all of the calls are there. Another path:
    another call, another line, or calls that are off by some numbers.
    """
    if cause is Cause.METADATA_MISMATCH:
        return same_op(divergence) and same_call_site(divergence) is not False
    if cause is Cause.ORDER_INVERSION:
        refusal = find_refusal(incident)
        threads = is_of_two_threads(divergence, incident) or (refusal is not None and refusal.how is Refused.THREADS)
        return threads or is_reordered(divergence, incident) or not holds_past(divergence, incident)
    if cause is Cause.DIVERGENT_PATH:
        other = not same_op(divergence) or same_call_site(divergence) is not True
        return other or divergence.shift is not None
    return True


def _may_be_away(cause: Cause, ranks: tuple[int, ...], divergence: Divergence, incident: Incident) -> bool:
    """A rank that is seen with nothing pending is elsewhere only if its stack, its log or its numbers say so. If
    somebody is missing, no link is to blame, and a GPU only if it is the missing rank's.
    """
    if divergence.how is PartingKind.ABSENCE and cause in (Cause.TRANSPORT, Cause.GPU_STALL):
        return cause is Cause.GPU_STALL and bool(ranks)
    if cause is not Cause.DIVERGENT_PATH or divergence.shift is not None or divergence.how is not PartingKind.ABSENCE:
        return True
    job, left = recorded_job(incident), {departed.rank for departed in find_departed(incident)}
    idle = job.free - job.elsewhere - left
    one_too_many = set(ranks) == set(divergence.sides[0])
    return one_too_many or not set(ranks) <= idle


def _is_recorded(divergence: Divergence, incident: Incident) -> bool:
    return any(divergence.group == group.group for group in incident.timeline.groups)


def _supposed(cause: Cause, ranks: tuple[int, ...], divergence: Divergence | None, job: Job) -> list[Repair]:
    named = frozenset(ranks)
    if cause in _AWAY or (divergence is None and cause is Cause.DIVERGENT_PATH):
        return [Repair(RepairKind.GO_ON, named)]
    return _at_divergence(cause, named, divergence, job) if divergence else []


def _at_divergence(cause: Cause, named: frozenset[int], divergence: Divergence, job: Job) -> list[Repair]:
    place = (divergence.group, divergence.channel, divergence.seq)
    launched_apart = cause is Cause.ORDER_INVERSION and divergence.how is PartingKind.STUCK  # made by two threads
    if launched_apart or cause in (Cause.GPU_STALL, Cause.TRANSPORT, Cause.STRAGGLER):
        # A host that waits for its own GPU does not come either.
        return [Repair(RepairKind.FINISH, named, *place), Repair(RepairKind.GO_ON, named)]
    if cause is Cause.METADATA_MISMATCH:
        return [Repair(RepairKind.FIT, named, *place)]
    sides = [named] if named else _sides(divergence, job)
    if cause is Cause.ORDER_INVERSION:
        if divergence.how is PartingKind.METADATA:
            return [Repair(RepairKind.ORDER, side, *place) for side in sides]
        return [Repair(RepairKind.ORDER, side) for side in sides]
    kinds = _of_path(divergence)
    here = [Repair(kind, side, *place) for side in sides for kind in kinds]
    return here + _of_departed(named, divergence, job) + _of_a_stretch(sides, divergence)


def _sides(divergence: Divergence, job: Job) -> list[frozenset[int]]:
    """Who may have acted differently, if nobody is named: one side of the slot, or, in a ring, those missing from one
    of its slots.
    """
    ring = set(divergence.cycle)
    missed = [side for slot in job.slots for side in (slot.absent, slot.waiting) if ring & side]
    alone = [frozenset({rank}) for rank in divergence.cycle]
    return list(
        dict.fromkeys(
            [*map(frozenset, divergence.sides), *missed, *alone, *map(frozenset, ring_sides(divergence, job))]
        )
    )


def ring_sides(divergence: Divergence, job: Job) -> tuple[tuple[int, ...], ...]:
    """Ranks that are in slots of the same kind in the ring (rows here, columns there), the smallest set first."""
    kinds = {(s.group.desc, s.seq) for rank in divergence.cycle if (s := job.stands.get(rank)) and not s.channel}
    together: dict[tuple[object, ...], set[int]] = {}
    for slot in job.slots:
        if slot.channel is None and (slot.group.desc, slot.seq) in kinds:
            together.setdefault((slot.group.desc, slot.seq), set()).update(slot.waiting)
        elif slot.channel and not slot.waiting.isdisjoint(divergence.cycle):
            together.setdefault((slot.channel, slot.seq), set()).update(slot.waiting)
    return tuple(sorted((tuple(sorted(ranks)) for ranks in together.values()), key=lambda side: (len(side), side)))


def _of_path(divergence: Divergence) -> tuple[RepairKind, ...]:
    if divergence.shift is not None:
        return (RepairKind.ISSUE,) if divergence.shift.by > 0 else (RepairKind.LEAVE_OUT, RepairKind.FIT)
    if divergence.how is PartingKind.METADATA:
        return RepairKind.FIT, RepairKind.LEAVE_OUT, RepairKind.ISSUE
    return RepairKind.ISSUE, RepairKind.LEAVE_OUT


def _of_a_stretch(sides: list[frozenset[int]], divergence: Divergence) -> list[Repair]:
    """A rank that skipped calls of one group may also have skipped the calls of other groups between them: a whole
    micro-batch.
    """
    skipped = divergence.how is PartingKind.ABSENCE and divergence.shift is not None and divergence.shift.by > 0
    return [Repair(RepairKind.ISSUE, side) for side in sides if skipped]


def _of_departed(ranks: frozenset[int], divergence: Divergence, job: Job) -> list[Repair]:
    """A rank that left its program is missing wherever others wait for it, not just in one call."""
    gone = divergence.how is PartingKind.ABSENCE and bool(ranks) and ranks.isdisjoint(job.stands)
    return [Repair(RepairKind.GO_ON, ranks)] if gone else []
