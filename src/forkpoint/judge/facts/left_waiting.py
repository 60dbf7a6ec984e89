"""Ranks whose last line comes, according to the source, from a place that the waiting ranks have not passed, or from one after
which the program only ends.
"""

import numpy as np
from msgspec import Struct

from forkpoint.judge.facts.blame import blames_peers, find_closings
from forkpoint.judge.facts.cite import cite_event, verb
from forkpoint.judge.facts.departures import Departure, find_departed
from forkpoint.judge.facts.late_ranks import find_gave_up
from forkpoint.judge.facts.stacks import MESSAGES, Standing, find_standings, is_waiting_for_ranks
from forkpoint.model.capture import LeftProgram, OtherWay
from forkpoint.model.frames import Lines, program_lines, user_place
from forkpoint.model.headline import first_words, plain_ranks, with_endings
from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import LogEvent
from forkpoint.model.verdict import Evidence
from forkpoint.model.world import name_ranks


class LeftWaiting(Struct, frozen=True):
    """Some ranks took another way than those who wait, judging by the last line that they printed."""

    ways: tuple[OtherWay, ...]
    waiting: tuple[Standing, ...]
    odd: bool
    """Those who wait are the majority; or all of them made that call in earlier rounds, as the others do now."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({way.rank for way in self.ways}))

    @property
    def at(self) -> str:
        """`train.py:12`: where the others wait."""
        return str(user_place(self.waiting[0].stack)).partition(" ")[0]

    def tell(self) -> str:
        way = self.ways[0]
        told = f"{name_ranks(self.ranks)} {way.how} in which the others wait ({self.at})"
        return f'{told}: the last line of rank {way.rank} is "{way.text}"'

    def headlines(self) -> tuple[str, ...]:
        way, words, them = self.ways[0], first_words(self.ways[0].text), verb(self.ranks, "it", "them")
        plain = f"{plain_ranks(self.ranks)} {way.how} in which the others wait for {them} ({self.at})"
        return with_endings(plain, f': it logged "{words}"' if words else "")

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        said = tuple(Evidence(w.file, w.rank, f"line {w.line}", w.text) for w in self.ways[:2])
        return (*said, *(one.evidence for one in self.waiting[:2]))


@fact
def find_left_waiting(incident: Incident) -> LeftWaiting | None:
    """Most ranks first. None if not all ranks whose place is known either wait or took another way."""
    standings, world = find_standings(incident), incident.timeline.world
    found: list[LeftWaiting] = []
    for place in dict.fromkeys(way.place for way in incident.capture.source.other_ways):
        here = (
            s for s in standings.values() if s.place == place and s.called not in MESSAGES
        )  # a partner has lines of its own
        waiting = tuple(s for s in here if is_waiting_for_ranks(s.stack))
        own = {
            rank: one for rank, one in standings.items() if is_waiting_for_ranks(one.stack)
        }  # known better than by a line
        ways = tuple(w for w in incident.capture.source.other_ways if w.place == place and w.rank not in own)
        known = {s.rank for s in waiting} | {w.rank for w in ways}
        others = len(world) + incident.timeline.unseen - len(waiting)
        if waiting and ways and known >= standings.keys():
            odd = len(waiting) > others or all(_called_from(place, way.rank, incident) for way in ways)
            found.append(LeftWaiting(ways, waiting, odd))
    return max(found, key=lambda one: len(one.waiting), default=None)


def _called_from(place: Lines, rank: int, incident: Incident) -> bool:
    """Its dump holds calls that it made from there."""
    trace, stacks = incident.timeline.traces.get(rank), incident.timeline.tables.stacks
    held = [] if trace is None else np.unique(trace.recent_stacks)
    return any(program_lines(stacks.get(token)) == place for token in held)


# ---------------------------------------------------------------------------------------------------------------------
# Ranks that ended their program while others still called them.


class EndedEarly(Struct, frozen=True):
    """By the line that they printed last, these ranks had nothing left to call."""

    left: tuple[LeftProgram, ...]
    missed_by: tuple[LogEvent, ...]
    """Where the others failed, for want of a peer."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(one.rank for one in self.left)

    @property
    def failed(self) -> bool:
        return self.left[0].failed

    def tell(self) -> str:
        one, code = self.left[0], " with an exit code that is not 0" if self.failed else ""
        told = (
            f"{name_ranks(self.ranks)} ended {verb(self.ranks, 'its', 'their')} program{code} while others still needed"
        )
        return f'{told} {verb(self.ranks, "it", "them")}: the last line of rank {one.rank} is "{one.text}"'

    def headlines(self) -> tuple[str, ...]:
        words = first_words(self.left[0].text)
        plain = f"{plain_ranks(self.ranks)} ended {verb(self.ranks, 'its', 'their')} program while others still needed"
        return with_endings(f"{plain} {verb(self.ranks, 'it', 'them')}", f': it logged "{words}"' if words else "")

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        said = tuple(Evidence(one.file, one.rank, f"line {one.line}", one.text) for one in self.left[:2])
        return (*said, *map(cite_event, self.missed_by[:2]))


@fact
def find_ended_early(incident: Incident) -> EndedEarly | None:
    """A rank that ends its program with a failure is the first reason for what others say of their peers afterwards, unless it spoke of
    peers itself. One that just comes to its end left early only if most others were seen to need it: a rank that finished is
    right where another does too much.
    """
    failures = {e.rank: e for e in (*find_closings(incident), *find_gave_up(incident).values()) if e.exception}
    left = [
        one for one in incident.capture.source.left if one.rank not in failures and _failed_alone(one.rank, incident)
    ]
    chosen = tuple(one for one in left if one.failed) or tuple(left)
    ranks = {one.rank for one in chosen}
    missed_by = tuple(e for rank, e in sorted(failures.items(), key=lambda kv: kv[0] or 0) if rank is not None)
    others = (d for d in find_departed(incident) if d.rank not in ranks and d.event is not None)
    if not chosen or not missed_by or any(d.how is not Departure.LEFT for d in others):
        return None
    size = len(incident.timeline.world) + incident.timeline.unseen
    few = 2 * len(ranks) < size if chosen[0].failed else 2 * len(missed_by) > size
    return EndedEarly(chosen, missed_by) if few else None


def _failed_alone(rank: int, incident: Incident) -> bool:
    """Nothing in its own log is a failure that others brought about."""
    return not any(blames_peers(e) for e in incident.said.get(rank, ()) if e.is_failure)
