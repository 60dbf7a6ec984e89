"""Ranks that others waited for, according to logs: who kept working meanwhile, and who did not come to a barrier."""

import re
from collections.abc import Sequence

from msgspec import Struct

from forkpoint.evidence.text import find_time, read_stamp
from forkpoint.judge.facts.blame import TIMEOUTS, asked_for_id, blames_peers, cut_off, find_closings, find_exits
from forkpoint.judge.facts.cite import cite_event, events_of, has_log
from forkpoint.judge.facts.contrast import find_lines, find_printed, split_line
from forkpoint.judge.facts.printed_values import own_logs
from forkpoint.judge.facts.rounds import find_rounds, is_at_own_work
from forkpoint.judge.facts.stacks import find_standings, waits_for_all
from forkpoint.model.frames import Lines, in_side_thread, program_lines
from forkpoint.model.headline import plain_ranks
from forkpoint.model.incident import Divergence, Incident, PartingKind, fact
from forkpoint.model.log import LogEvent, LogKind, PrintedLine
from forkpoint.model.verdict import Evidence
from forkpoint.model.world import name_ranks

_NUMBER = re.compile(r"\d{1,7}")
_REPEATS = 3
"""Consecutive lines about a retry: after a single one the retry may have succeeded."""
_CLOCK = re.compile(r"[\[(]?(\d\d):(\d\d):(\d\d)\b")
"""A time without a date."""
_EPOCH = re.compile(r"(?<![\d.])(1[5-9]\d{8})(?:\.\d{1,9})?(?!\d)")
"""Seconds since 1970, from 2017 to 2033."""
_NEAR_START = 60
_RETRIES = re.compile(
    r"\bretry|\bretries\b|\battempt\b|\b(?:still )?waiting (?:for|on)\b|\btry(?:ing)? again\b", re.IGNORECASE
)
_NEAR = 1_800_000_000.0
"""Some second, to guess a year that is not printed: all times here are of one job."""


class WorkedOn(Struct, frozen=True):
    """Ranks whose program continued to print while others waited, until those gave up."""

    ranks: tuple[int, ...]
    seconds: int
    """How many seconds, at least, their last lines are later than those of all ranks that waited."""
    timeout_ms: int
    evidence: tuple[Evidence, ...]
    waited: str
    """In words: who waited for it."""
    retries: bool = False
    """Its last lines say that it retries the same thing again and again, or waits for something."""


def find_who_did_not_come(incident: Incident) -> int | None:
    """The only rank that reports no failure, if ranks gave up waiting, and all others did so with them or because they
    had gone.

    A process that dies closes its connections at once, so nobody waits until a timeout. One that waits for others gives
    up like them, or loses its connections when they end. So this rank was alive and in no call.
    """
    gave_up = find_gave_up(incident)
    rest = set(incident.timeline.world) - gave_up.keys() - cut_off(incident)
    failed = {e.rank for e in incident.capture.events if e.is_failure and not in_side_thread(e.stack)}
    alone = len(rest) == 1 and len(gave_up) > 1 and not rest & failed and incident.timeline.unseen <= 1
    ended = {rank for rank, end in find_exits(incident).items() if end.is_first}
    return rest.pop() if alone and not rest & ended else None


def find_failed_thread(rank: int, incident: Incident) -> LogEvent | None:
    """An exception of its own program ended a thread other than the main one, on this rank alone: nobody does the
    thread's work any more, and whoever waits for it waits for ever.
    """
    ended = [e for e in incident.capture.events if e.exception and in_side_thread(e.stack) and not blames_peers(e)]
    return ended[0] if ended and {e.rank for e in ended} == {rank} else None


def find_gave_up(incident: Incident) -> dict[int, LogEvent]:
    """Ranks that waited for others until a timeout, in a call or for a communicator."""
    events = incident.capture.events
    return {
        e.rank: e for e in events if e.rank is not None and (e.kind in TIMEOUTS or (e.exception and asked_for_id(e)))
    }


class _Waited(Struct, frozen=True):
    """Who continued while these ranks waited, and for what share of their timeout at least."""

    ranks: tuple[int, ...]
    others: list[int]
    least: float


def find_worked_on(incident: Incident) -> WorkedOn | None:
    """Ranks that report no failure and continued for long after the last line of every rank that waited."""
    gave_up, found = find_gave_up(incident), _who_was_waited_for(incident)
    timeout_ms = max((_timeout_ms(event) for event in gave_up.values()), default=0)
    later = _later_by(found.ranks, found.others, incident)
    if not timeout_ms or later is None or later * 1000 < timeout_ms * found.least:
        return None
    said = [find_lines(incident)[rank] for rank in found.ranks]
    cited = (*(lines[-1] for lines in said[:2]), *(cite_event(e) for e in list(gave_up.values())[:3]))
    retries = all(len(lines) >= _REPEATS and all(_RETRIES.search(e.says) for e in lines[-_REPEATS:]) for lines in said)
    everyone = len(found.others) + len(found.ranks) == len(incident.timeline.world)
    return WorkedOn(
        found.ranks, later, timeout_ms, cited, "the others" if everyone else name_ranks(found.others), retries
    )


@fact
def find_late_by_own_clock(incident: Incident) -> WorkedOn | None:
    """Ranks gave up in a call. Another one came to the same line when they had gone: after work of its own that took longer than
    their timeout, by the times in its own log, or still printing so long after their last lines. Whatever the other ranks did: for
    this one alone they would have waited too long.
    """
    gave_up, standings = find_gave_up(incident), find_standings(incident)
    waited = [standings[rank] for rank in gave_up if rank in standings]
    if len(waited) < len(gave_up) or len({one.place for one in waited}) != 1:
        return None
    timeout_ms = max(map(_timeout_ms, gave_up.values()))
    closed = {e.rank: e for e in find_closings(incident) if e.rank is not None and e.rank not in gave_up}
    took = {
        rank: max(_worked_alone(rank, set(gave_up), incident), _later_by((rank,), list(gave_up), incident) or 0)
        for rank in sorted(closed)
        if rank in standings and standings[rank].place == waited[0].place
    }
    late = {rank: seconds for rank, seconds in took.items() if timeout_ms and seconds * 1000 >= timeout_ms}
    if not late or 2 * len(late) >= len(incident.timeline.world):
        return None
    lines = [find_lines(incident)[rank][-1] for rank in late]
    cited = (*lines[:2], *(cite_event(closed[rank]) for rank in late), *map(cite_event, list(gave_up.values())[:3]))
    return WorkedOn(tuple(late), min(late.values()), timeout_ms, cited, plain_ranks(list(gave_up)))


def _worked_alone(rank: int, others: set[int], incident: Incident) -> int:
    """Seconds from its last line of a form that the others print as well to its last line, which none of them ever prints; 0 if
    not known.
    """
    said: dict[int, list[PrintedLine]] = {}
    for _, speaker, line in find_printed(incident):
        said.setdefault(speaker, []).append(line)
    own = said.get(rank, [])
    theirs = {split_line(line.text)[0] for other in others for line in said.get(other, [])}
    shared = [at for at, line in enumerate(own) if split_line(line.text)[0] in theirs]
    if not shared or shared[-1] == len(own) - 1:
        return 0
    first, last = moment_of(own[shared[-1]]), moment_of(own[-1])
    return last.second - first.second if first and last and first.dated == last.dated else 0


def worked_on_instead(divergence: Divergence, incident: Incident) -> bool:
    """Some wait in a call, and the logs of ranks without a dump show them at work meanwhile."""
    worked = find_worked_on(incident) if divergence.how is PartingKind.ABSENCE and not divergence.odd else None
    return worked is not None and set(worked.ranks) <= set(divergence.unknown)


def _later_by(ranks: Sequence[int], others: Sequence[int], incident: Incident) -> int | None:
    """Seconds from the last line of all others to the first of these ranks' last lines; None unless all are known."""
    own, theirs = ([_last_second(rank, incident) for rank in side] for side in (ranks, others))
    known = [one for one in (*own, *theirs) if one is not None]
    if not own or not theirs or len(known) < len(own) + len(theirs) or len({one.dated for one in known}) > 1:
        return None
    return min(one.second for one in known[: len(own)]) - max(one.second for one in known[len(own) :])


def _who_was_waited_for(incident: Incident) -> _Waited:
    rank, gave_up = find_who_did_not_come(incident), list(find_gave_up(incident))
    if rank is not None:
        return _Waited((rank,), [r for r in incident.timeline.world if r != rank], 0.5)
    rank = _find_at_own_work(incident)
    return _Waited(_find_behind(incident), gave_up, 0.5) if rank is None else _Waited((rank,), gave_up, 1)


def _find_behind(incident: Incident) -> tuple[int, ...]:
    """Ranks that, by the rounds that they printed, had not reached the point at which others gave up in a call of the
    whole job. Nobody else can be the reason that these wait: none of the earlier calls ends without every rank.
    """
    gave_up, standings = find_gave_up(incident), find_standings(incident)
    inside = [standings[rank] for rank in gave_up if rank in standings]
    if not inside or len(inside) < len(gave_up) or len({one.place for one in inside}) > 1:
        return ()
    if not all(waits_for_all(one) and not one.may_end_alone for one in inside):
        return ()
    rounds = [one for one in find_rounds(incident) if one.last.keys() >= gave_up.keys()]
    behind = {rank for one in rounds for rank in one.behind()}
    quiet = all(is_quiet(rank, incident) for rank in behind)
    in_front = bool(rounds) and behind.isdisjoint(gave_up) and all(set(one.behind()) == behind for one in rounds)
    return tuple(sorted(behind)) if quiet and in_front and behind.isdisjoint(cut_off(incident)) else ()


def _find_at_own_work(incident: Incident) -> int | None:
    """Some ranks have no log, and all others gave up in a call of the whole job, except one that does work that it
    alone does. Had it been in that call, it would have given up as well; and none of these calls ends without it.
    """
    gave_up, standings = find_gave_up(incident), find_standings(incident)
    rest = sorted(set(own_logs(incident)) - gave_up.keys() - cut_off(incident))
    inside = [standings[rank] for rank in gave_up if rank in standings]
    if len(rest) != 1 or not gave_up or len(inside) < len(gave_up) or not is_quiet(rest[0], incident):
        return None
    for_all = all(waits_for_all(one) and not one.may_end_alone for one in inside)
    return rest[0] if for_all and is_at_own_work(rest[0], set(gave_up), incident) else None


@fact
def find_missed(incident: Incident) -> tuple[tuple[int, ...], tuple[LogEvent, ...]]:
    """Ranks that did not come to a monitored barrier, as rank 0 names them, and rank 0's log line."""
    told = tuple(e for e in incident.capture.events if e.kind is LogKind.BARRIER_MISSED and e.rank == 0)
    return tuple(sorted({int(n) for e in told for n in _NUMBER.findall(e.detail("missing") or "")})), told


def came_later(ranks: tuple[int, ...], incident: Incident) -> tuple[LogEvent, ...]:
    """Their own log lines that they came to a barrier after all; empty unless all of them say so."""
    came = [e for r in ranks for e in events_of(r, incident, LogKind.PEER_TIMEOUT) if e.pattern.startswith("barrier-")]
    return tuple(came) if {e.rank for e in came} == set(ranks) else ()


class CameAtLast(Struct, frozen=True):
    """Ranks whose dumps do not hold the call in which others wait, and which reached it after those had given up."""

    told: tuple[LogEvent, ...]
    """Their own log lines, then those of ranks that waited there."""
    seconds: int | None
    """How much later their last lines are than those of all others; None if not known."""
    timeout_ms: int
    """0: nobody is known to have given up there."""

    @property
    def worked_longer(self) -> bool:
        """For longer than the timeout. Otherwise the dumps may be older, and another rank may have delayed them all."""
        return self.seconds is not None and self.timeout_ms > 0 and self.seconds * 1000 >= self.timeout_ms


@fact
def find_came_at_last(incident: Incident) -> CameAtLast | None:
    """Some wait in a call. All ranks missing there log that a connection was closed on them in that line: so they were
    not stuck for ever, and did not take another path. They were late if others had waited there until their timeout.
    """
    divergence, gave_up = incident.divergence, find_gave_up(incident)
    if divergence is None or divergence.how is not PartingKind.ABSENCE or not divergence.odd:
        return None
    places = _places_of(divergence)
    waited = [e for rank, e in gave_up.items() if rank not in divergence.odd and program_lines(e.stack) in places]
    closed = {e.rank: e for e in find_closings(incident) if program_lines(e.stack) in places and e.rank not in gave_up}
    if not set(divergence.odd) <= closed.keys():
        return None
    others = [rank for rank in own_logs(incident) if rank not in divergence.odd]
    told = (*(closed[rank] for rank in divergence.odd), *waited)
    return CameAtLast(told, _later_by(divergence.odd, others, incident), max(map(_timeout_ms, waited), default=0))


def _places_of(divergence: Divergence) -> set[Lines]:
    return {program_lines(c.stack) for c in divergence.cohorts if c.op and c.stack} - {()}


def were_alive(ranks: tuple[int, ...], incident: Incident) -> tuple[Evidence, ...]:
    """Their launcher's lines that it had to stop them, if they report no failure themselves; empty unless this holds
    for all.
    """
    exits = find_exits(incident)
    failed = {e.rank for e in incident.capture.events if e.is_failure and e.kind is not LogKind.BARRIER_MISSED}
    stopped = [exits[r] for r in ranks if r in exits and exits[r].is_stopped and r not in failed]
    return tuple(cite_event(end.event) for end in stopped) if len(stopped) == len(ranks) else ()


def is_quiet(rank: int, incident: Incident) -> bool:
    """Its complete log is there and reports no failure."""
    failed = [e for e in incident.said.get(rank, ()) if e.is_failure and not in_side_thread(e.stack)]
    cut = any(owner == rank and file in incident.capture.cut_logs for file, owner in incident.capture.logs)
    return has_log(rank, incident) and not cut and not failed


def _timeout_ms(event: LogEvent) -> int:
    return event.work.timeout_ms if event.work else int(event.detail("ms") or 0)


class PrintedTime(Struct, frozen=True):
    second: int
    dated: bool
    """Seconds since 1970; otherwise since midnight."""


def _last_second(rank: int, incident: Incident) -> PrintedTime | None:
    """The second of the last line that its program printed with a time."""
    said = (moment_of(line) for _, speaker, line in reversed(find_printed(incident)) if speaker == rank)
    return next((one for one in said if one), None)


def moment_of(line: PrintedLine) -> PrintedTime | None:
    stamp = read_stamp(line.time or find_time(line.text) or "")
    if stamp is not None and (second := stamp.seconds(_NEAR)) is not None:
        return PrintedTime(second, dated=True)
    if epoch := _EPOCH.search(line.text[:_NEAR_START]):
        return PrintedTime(int(epoch[1]), dated=True)
    clock = _CLOCK.match(line.text)
    return PrintedTime(int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3]), dated=False) if clock else None
