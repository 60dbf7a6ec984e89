"""Ranks for which all others waited, by what logs say alone: who kept working meanwhile, and who did not come to a barrier."""

import re
from dataclasses import dataclass

from forkpoint.detectors.cite import cite_event, events_of
from forkpoint.detectors.dissent import own_logs
from forkpoint.detectors.exits import find_exits
from forkpoint.ingest.stamps import read_stamp
from forkpoint.model.incident import Incident
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.verdict import Evidence

_NUMBER = re.compile(r"\d{1,7}")
_REPEATS = 3
"""Lines in a row that speak of another try: one alone may be followed by success."""
_TIMEOUTS = (LogKind.PEER_TIMEOUT, LogKind.WATCHDOG_TIMEOUT)
_CLOCK = re.compile(r"[\[(]?(\d\d):(\d\d):(\d\d)\b")
"""A time without a date."""
_RETRIES = re.compile(
    r"\bretry|\bretries\b|\battempt\b|\b(?:still )?waiting (?:for|on)\b|\btry(?:ing)? again\b", re.IGNORECASE
)
_NEAR = 1_800_000_000.0
"""Some second, to find a year that is not printed: all times here are of one job."""


@dataclass(frozen=True, slots=True)
class WorkedOn:
    """A rank whose program went on printing while all others waited, until they gave up."""

    rank: int
    seconds: int
    """How much later than those of all others its last line is."""
    timeout_ms: int
    evidence: tuple[Evidence, ...]
    retries: bool = False
    """Its last lines say that it tries the same thing again and again, or waits for something."""


def find_worked_on(incident: Incident) -> WorkedOn | None:
    """Nothing of it speaks of a failure, and every other rank ran into a timeout."""
    world, capture = set(incident.timeline.world), incident.capture
    gave_up = {e.rank: e for e in capture.events if e.kind in _TIMEOUTS and e.rank is not None}
    rest = world - gave_up.keys()
    failed = {e.rank for e in capture.events if e.is_failure}
    if len(rest) != 1 or len(gave_up) < 2 or rest & failed or incident.timeline.unseen > 1:
        return None
    (rank,) = rest
    own, others = _last_second(rank, incident), [_last_second(r, incident) for r in gave_up]
    timeout_ms = max((_timeout_ms(event) for event in gave_up.values()), default=0)
    if own is None or not timeout_ms or any(other is None or other.dated != own.dated for other in others):
        return None
    later = own.second - max(other.second for other in others if other is not None)
    if later * 2000 < timeout_ms:
        return None
    file = own_logs(incident)[rank]
    lines = capture.log_ends[file].lines
    cited = (Evidence(file, rank, "end", lines[-1]), *(cite_event(e) for e in list(gave_up.values())[:3]))
    retries = len(lines) >= _REPEATS and all(_RETRIES.search(line) for line in lines[-_REPEATS:])
    return WorkedOn(rank, later, timeout_ms, cited, retries)


def find_missed(incident: Incident) -> tuple[tuple[int, ...], tuple[LogEvent, ...]]:
    """Ranks that did not come to a monitored barrier, as rank 0 names them, and its words."""
    told = tuple(e for e in incident.capture.events if e.kind is LogKind.BARRIER_MISSED and e.rank == 0)
    return tuple(sorted({int(n) for e in told for n in _NUMBER.findall(e.detail("missing") or "")})), told


def came_later(ranks: tuple[int, ...], incident: Incident) -> tuple[LogEvent, ...]:
    """Their own words that they came to a barrier after all; empty unless all of them say so."""
    came = [e for r in ranks for e in events_of(r, incident, LogKind.PEER_TIMEOUT) if e.pattern.startswith("barrier-")]
    return tuple(came) if {e.rank for e in came} == set(ranks) else ()


def were_alive(ranks: tuple[int, ...], incident: Incident) -> tuple[Evidence, ...]:
    """Their launcher's word that it had to stop them, and none of their own of a failure; empty unless so for all."""
    exits = find_exits(incident)
    failed = {e.rank for e in incident.capture.events if e.is_failure and e.kind is not LogKind.BARRIER_MISSED}
    stopped = [exits[r] for r in ranks if r in exits and exits[r].is_stopped and r not in failed]
    return tuple(cite_event(end.event) for end in stopped) if len(stopped) == len(ranks) else ()


def _timeout_ms(event: LogEvent) -> int:
    return event.work.timeout_ms if event.work else int(event.detail("ms") or 0)


@dataclass(frozen=True, slots=True)
class _Said:
    second: int
    dated: bool
    """Seconds since 1970; otherwise since midnight."""


def _last_second(rank: int, incident: Incident) -> _Said | None:
    """Of the last line that the program itself printed with a time, in a log of its own."""
    file = own_logs(incident).get(rank)
    ending = incident.capture.log_ends[file] if file else None
    stamp = read_stamp(ending.own_time) if ending and ending.own_time else None
    second = stamp.seconds(_NEAR) if stamp else None
    if second is not None:
        return _Said(second, dated=True)
    clock = next((found for line in reversed(ending.lines) if (found := _CLOCK.match(line))), None) if ending else None
    return _Said(int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3]), dated=False) if clock else None
