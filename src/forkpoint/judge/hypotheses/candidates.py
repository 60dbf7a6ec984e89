"""Ranks that the others may be waiting for although no dump shows it: the fewest whose absence explains every wait."""

from collections import Counter

from forkpoint.judge.facts.cite import events_of, names_group
from forkpoint.judge.facts.stacks import find_standings, is_communicating, is_waiting_for_ranks
from forkpoint.judge.facts.symptom import without_dumps
from forkpoint.judge.hypotheses.repairs import recorded_job
from forkpoint.judge.hypotheses.unhindered import find_unhindered
from forkpoint.model.frames import Lines, program_lines
from forkpoint.model.incident import Incident, PartingKind, fact
from forkpoint.model.log import LogKind
from forkpoint.replay import Job, Repair, RepairKind, Slot, replay

_MAX_TRIED = 64
"""Maximum number of single ranks to replay; if there are more, those that most calls are missing."""
_NEAR = 1
"""How many more assumptions a candidate may need than the best one: one more rank without a dump would reverse the
order.
"""
_MAX_NAMED = 8
_ASKED = 2
"""How many of the ranks waiting in one call are examined: they called from the same place, or their cohorts would
differ.
"""
_WAITS_TOO = (LogKind.WATCHDOG_TIMEOUT, LogKind.PEER_TIMEOUT)


@fact
def find_missed_ranks(incident: Incident) -> tuple[tuple[int, ...], ...]:
    """Ranks whose absence alone explains all waits: those missing from the fork's own slot first, then by the number of
    assumptions. Candidates that need many more assumptions than the best are left out.
    """
    job = recorded_job(incident)
    idle = job.free - job.elsewhere
    if idle:
        return (tuple(sorted(idle)),)
    fork = incident.divergence
    if not job.slots and fork is not None and fork.how is PartingKind.ABSENCE and fork.sides[1:]:
        return (fork.sides[1],)  # no entries: only its counters show it
    tried = [(replay(job, Repair(RepairKind.GO_ON, frozenset({rank}))), rank) for rank in _pool(job, incident)]
    explaining = sorted((sum(shown.cost), rank) for shown, rank in tried if shown.explains)
    unhindered = find_unhindered(job, incident)
    explaining = [one for one in explaining if one[1] in unhindered] or explaining
    best = explaining[0][0] if explaining else 0
    missed = incident.divergence.unknown if incident.divergence else ()
    here = [rank for _, rank in explaining if rank in missed]
    others = [rank for cost, rank in explaining if rank not in missed and cost <= best + _NEAR]
    found = tuple((rank,) for rank in (*here, *others))[:_MAX_NAMED]
    return found or ((apart,) if (apart := tuple(sorted(find_apart(incident)))) else ())


@fact
def find_apart(incident: Incident) -> frozenset[int]:
    """Ranks missing from a waiting call that are, by their stack or traceback, in a communication call on another line
    which no dump holds: their dump is lost, or NCCL had not recorded the call yet, as with the first call of a group
    before its communicator exists.
    """
    job, standings = recorded_job(incident), find_standings(incident)
    return frozenset(
        rank
        for slot in job.slots
        for rank in ((slot.absent & job.free & job.elsewhere) | slot.unknown) & standings.keys()
        if is_waiting_for_ranks(standings[rank].stack) and standings[rank].place
        if standings[rank].place[:1] not in _places_of_waiting(slot, incident)
    )


def _places_of_waiting(slot: Slot, incident: Incident) -> set[Lines]:
    """The innermost lines. py-spy names functions otherwise than the recorder (`Trainer.evaluate`)."""
    waiting = (incident.timeline.positions[rank][0].op.stack for rank in list(slot.waiting)[:_ASKED])
    return {program_lines(stack)[:1] for stack in waiting} - {()}


def _pool(job: Job, incident: Incident) -> list[int]:
    """Ranks that a waiting call needs and whose position no dump shows, except those whose log or stack shows them in
    that call.
    """
    hidden = job.elsewhere - job.free
    missed = Counter(
        rank for slot in job.slots for rank in (slot.unknown - find_seen_in(slot, incident)) | (slot.absent & hidden)
    )
    return sorted(sorted(missed, key=lambda rank: (-missed[rank], rank))[:_MAX_TRIED])


def find_seen_in(slot: Slot, incident: Incident) -> frozenset[int]:
    """Ranks without a dump that are in this very call: their log names it, or their stack, or the traceback of a call
    that failed because of their peers, is at the line of those who wait.
    """
    named = {
        e.rank
        for rank in slot.unknown
        for e in events_of(rank, incident, LogKind.WATCHDOG_TIMEOUT)
        if e.work is not None and e.work.seq == slot.seq and slot.channel is None and names_group(e, slot.group)
    }
    places, standings = _places_of_waiting(slot, incident), find_standings(incident)
    standing = {
        rank
        for rank in slot.unknown & standings.keys()
        if is_waiting_for_ranks(standings[rank].stack) and standings[rank].place[:1] in places
    }
    return frozenset(rank for rank in named | standing if rank is not None)


@fact
def find_seen_waiting(incident: Incident) -> frozenset[int]:
    """Ranks that wait for others according to their own log or stack."""
    by_log = {rank for rank in incident.heard if events_of(rank, incident, *_WAITS_TOO)}
    return frozenset(by_log | {s.rank for s in incident.capture.stacks if is_communicating(s.stack)})


@fact
def find_unheard(incident: Incident) -> frozenset[int]:
    """Ranks without any evidence: no dump, no log, no stack."""
    seen = incident.heard | {stack.rank for stack in incident.capture.stacks}
    return frozenset(rank for rank in without_dumps(incident) if rank not in seen)
