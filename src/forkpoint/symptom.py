"""What the user saw: from logs, and from ops that never finished."""

from forkpoint.model.divergence import Divergence, PartingKind
from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import LogKind
from forkpoint.model.op import OpState
from forkpoint.model.op_names import SYNCHRONISING
from forkpoint.model.verdict import Symptom

_NO_ERRORS = (LogKind.WATCHDOG_TIMEOUT, LogKind.GIL_HELD)


@fact
def find_symptom(incident: Incident) -> Symptom | None:
    """None: the evidence does not show it (dumps alone do not say what was printed)."""
    kinds = {e.kind for e in incident.capture.events}
    died_of_timeout = any(e.kind is LogKind.WATCHDOG_DIED and e.work for e in incident.capture.events)
    if LogKind.WATCHDOG_TIMEOUT in kinds or died_of_timeout:
        return Symptom.WATCHDOG_TIMEOUT
    if any(e.is_failure and e.kind not in _NO_ERRORS for e in incident.capture.events):
        return Symptom.ERROR
    divergence = incident.divergence
    if divergence is not None and is_finishing(divergence):
        return Symptom.NONE
    if is_pending(incident) or (incident.capture.stacks and not has_ops(incident)):
        return Symptom.SILENT_HANG if _must_hang(incident) else None
    if divergence is not None:
        return Symptom.NO_HANG
    return Symptom.NONE if incident.timeline.traces else None


def only_values_tell(incident: Incident) -> bool:
    """Values were recorded, and the job did not fail or hang in a way that they do not explain."""
    failed = any(e.is_failure for e in incident.capture.events)
    return bool(incident.capture.values) and not (failed or incident.divergence or is_pending(incident))


def is_pending(incident: Incident) -> bool:
    return bool(incident.timeline.stands)


def _must_hang(incident: Incident) -> bool:
    """An op outlived its timeout, ranks cannot get on by themselves, or none ever began."""
    divergence = incident.divergence
    deadlock = divergence is not None and divergence.how in (
        PartingKind.CYCLE,
        PartingKind.METADATA,
        PartingKind.MESSAGE,
    )
    return incident.outlived_timeout or _stood_still(incident) or deadlock or not has_ops(incident)


@fact
def has_ops(incident: Incident) -> bool:
    return any(t.entries for t in incident.timeline.traces.values())


@fact
def hang_is_shown(incident: Incident) -> bool:
    """Something says that pending ops hang and were not just caught in flight.

    NCCL writes dumps when something went wrong, so its dumps alone count; gloo's are only ever taken on demand. Logs
    that are there and say nothing wrong speak against it, unless an op is older than its timeout.
    """
    symptom = find_symptom(incident)
    if symptom in (Symptom.WATCHDOG_TIMEOUT, Symptom.ERROR) or incident.outlived_timeout or _stood_still(incident):
        return True
    by_nccl = any(t.comm_lib.startswith("nccl") for t in incident.timeline.traces.values())
    return by_nccl and not incident.capture.logs


@fact
def _stood_still(incident: Incident) -> bool:
    """Someone looked more than once while the job ran."""
    return any(e.kind is LogKind.STOOD_STILL for e in incident.capture.events)


@fact
def stands_still(incident: Incident) -> bool:
    """Every main thread waits for another thread, or was seen twice at the same place, or a watch saw nothing move."""
    held = {s.rank for s in incident.capture.stacks if s.thread or s.seen > 1}
    return _stood_still(incident) or (bool(held) and held >= set(incident.timeline.world))


def is_finishing(divergence: Divergence) -> bool:
    """Some members are done with a slot that no one finishes alone: all have issued it, it was caught in flight."""
    waiting = divergence.how in (PartingKind.STUCK, PartingKind.ABSENCE) and divergence.channel is None
    return waiting and any(c.state is OpState.COMPLETED and c.op in SYNCHRONISING for c in divergence.cohorts)
