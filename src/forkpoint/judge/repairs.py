"""What a claim supposes to have gone wrong, as a change under which the recorded job would have gone on; and its replay."""

from forkpoint.diverge.waits import Waits, find_waits
from forkpoint.judge.cite import live_stack
from forkpoint.judge.stacks import is_communicating
from forkpoint.model.incident import Divergence, Incident, PartingKind, fact
from forkpoint.model.verdict import Cause, Finding
from forkpoint.replay import Job, Repair, RepairKind, Replay, replay

_AWAY = frozenset({Cause.HOST_STALL, Cause.RANK_LOST, Cause.NEVER_JOINED})
_NOT_REPLAYED = frozenset({Cause.SILENT_CORRUPTION, Cause.HEALTHY, Cause.INCONCLUSIVE})


@fact
def recorded_job(incident: Incident) -> Job:
    """The end of the job as the dumps have it."""
    waits = find_waits(incident.timeline)
    return Job.of(incident.timeline, waits, incident.divergences, _in_unrecorded_calls(waits, incident))


def _in_unrecorded_calls(waits: Waits, incident: Incident) -> frozenset[int]:
    """Ranks with nothing pending whose stack is in a communication call: one that their dump does not hold."""
    seen = (s.rank for s in incident.capture.stacks if s.rank not in waits)
    return frozenset(r for r in seen if (stack := live_stack(r, incident)) and is_communicating(stack.stack))


def find_replay(
    cause: Cause, ranks: tuple[int, ...], divergence: Divergence | None, incident: Incident
) -> tuple[Repair, Replay] | None:
    """The smallest repair that the claim supposes, replayed. None: no recorded call shows where ranks stopped."""
    job = recorded_job(incident)
    recorded = divergence is None or any(divergence.group == g.group for g in incident.timeline.groups)
    if not job.slots or not recorded or cause in _NOT_REPLAYED:
        return None
    tried = [(repair, replay(job, repair)) for repair in _supposed(cause, ranks, divergence, job)]
    return min(tried, key=lambda one: (not one[1].explains, one[1].cost, len(one[0].ranks)), default=None)


def is_explained(finding: Finding, incident: Incident) -> bool:
    """Replay does not refuse it. Where no recorded call can be replayed, nothing does."""
    found = find_replay(finding.cause, finding.suspects, finding.divergence, incident)
    return found is None or found[1].explains


def _supposed(cause: Cause, ranks: tuple[int, ...], divergence: Divergence | None, job: Job) -> list[Repair]:
    named = frozenset(ranks)
    if cause in _AWAY or (divergence is None and cause is Cause.DIVERGENT_PATH):
        return [Repair(RepairKind.GO_ON, named)]
    return _at_divergence(cause, named, divergence, job) if divergence else []


def _at_divergence(cause: Cause, named: frozenset[int], divergence: Divergence, job: Job) -> list[Repair]:
    place = (divergence.group, divergence.channel, divergence.seq)
    if cause in (Cause.GPU_STALL, Cause.TRANSPORT, Cause.STRAGGLER):
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
    return [Repair(kind, side, *place) for side in sides for kind in kinds] + _of_departed(named, divergence, job)


def _sides(divergence: Divergence, job: Job) -> list[frozenset[int]]:
    """Who may have done otherwise, where nobody is named: a side of the slot, or in a ring those whom a slot of it misses."""
    ring = set(divergence.cycle)
    missed = [side for slot in job.slots for side in (slot.absent, slot.waiting) if ring & side]
    alone = [frozenset({rank}) for rank in divergence.cycle]
    return list(dict.fromkeys([*map(frozenset, divergence.sides), *missed, *alone]))


def _of_path(divergence: Divergence) -> tuple[RepairKind, ...]:
    if divergence.shift is not None:
        return (RepairKind.ISSUE,) if divergence.shift.by > 0 else (RepairKind.LEAVE_OUT, RepairKind.FIT)
    if divergence.how is PartingKind.METADATA:
        return RepairKind.FIT, RepairKind.LEAVE_OUT, RepairKind.ISSUE
    return RepairKind.ISSUE, RepairKind.LEAVE_OUT


def _of_departed(ranks: frozenset[int], divergence: Divergence, job: Job) -> list[Repair]:
    """A rank that left its program is missed wherever others wait for it, not in one call."""
    gone = divergence.how is PartingKind.ABSENCE and bool(ranks) and ranks.isdisjoint(job.stands)
    return [Repair(RepairKind.GO_ON, ranks)] if gone else []
