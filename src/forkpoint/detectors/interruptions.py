"""Jobs that a person or a scheduler ended while nothing was wrong with them."""

import re

from forkpoint.detectors.dissent import own_logs
from forkpoint.detectors.standings import find_standings
from forkpoint.model.incident import Incident
from forkpoint.model.log import LogEvent, LogKind

_STEP = re.compile(r"\b(?:global_)?(?:step|iter|iteration)[ :=#]{1,2}(\d{1,9})\b", re.IGNORECASE)
_BY_A_PERSON = "KeyboardInterrupt"


def find_failures(incident: Incident) -> tuple[LogEvent, ...]:
    """Words of failures, without those that follow an interruption, and those after which the log says that all was done."""
    interrupted = _interrupted(incident)
    ends = incident.capture.log_ends
    return tuple(
        e
        for e in incident.capture.events
        if e.is_failure
        and not (e.file in interrupted and e.line >= interrupted[e.file])
        and not (e.file in ends and (done := ends[e.file].done) is not None and e.line < done)
    )


def all_were_interrupted(incident: Incident) -> bool:
    """Every rank, by a person, at one and the same place: nobody was waited for."""
    ranks = {e.rank for e in incident.capture.events if e.exception == _BY_A_PERSON}
    world = set(incident.timeline.world)
    places = {one.place for rank, one in find_standings(incident).items() if rank in world}
    return len(world) > 1 and ranks >= world and len(places) == 1


def all_ended_in_order(incident: Incident) -> bool:
    """Who started the job saw it succeed; or every rank that is heard says that it was done, or took its groups down; or one
    says that it was done, and all came to the same step.
    """
    if any(e.kind is LogKind.FINISHED for e in incident.capture.events):
        return True
    ends, logs = incident.capture.log_ends, incident.capture.logs
    done = {rank for file, rank in logs if file in ends and ends[file].done is not None}
    done |= {e.rank for e in incident.capture.events if e.kind is LogKind.LEFT}
    alive = bool(incident.capture.stacks) or any(e.kind is LogKind.AGENT_FAILURE for e in incident.capture.events)
    together = bool(done) and len(set(_last_steps(incident).values())) == 1
    world = set(incident.timeline.world)
    ended = done >= world or (together and _last_steps(incident).keys() == world)
    return len(incident.heard) > 1 and ended and not alive


def _last_steps(incident: Incident) -> dict[int, int]:
    """The last step that each rank printed in a log of its own."""
    found: dict[int, int] = {}
    for rank, file in own_logs(incident).items():
        steps = [int(said[1]) for line in incident.capture.log_ends[file].lines if (said := _STEP.search(line))]
        if steps:
            found[rank] = steps[-1]
    return found


def _interrupted(incident: Incident) -> dict[str, int]:
    """Where each log tells of it first: by Ctrl-C, by the launcher that got it, or by a scheduler that cancelled the job."""
    found: dict[str, int] = {}
    for event in incident.capture.events:
        by_launcher = event.pattern == "agent-stopped" or event.kind is LogKind.CANCELLED
        if event.exception == _BY_A_PERSON or by_launcher:
            found.setdefault(event.file, event.line)
    return found
