"""Ranks whose last line, by the source, comes from a place that those who wait have not passed."""

import numpy as np
from msgspec import Struct

from forkpoint.judge.cite import verb
from forkpoint.judge.stacks import Standing, find_standings, is_waiting_for_ranks
from forkpoint.judge.telling import first_words
from forkpoint.model.capture import OtherWay
from forkpoint.model.frames import Lines, program_lines, user_place
from forkpoint.model.headline import plain_ranks, with_endings
from forkpoint.model.incident import Incident, fact
from forkpoint.model.verdict import Evidence
from forkpoint.model.world import name_ranks


class LeftWaiting(Struct, frozen=True):
    """Some went another way than those who wait, by the line that they printed last."""

    ways: tuple[OtherWay, ...]
    waiting: tuple[Standing, ...]
    odd: bool
    """Those who wait are more than all others; or all of them made that call in earlier rounds, as the others do now."""

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
    """Most ranks first. None if those who wait, and those who went another way, are not all whose place is known."""
    standings, world = find_standings(incident), incident.timeline.world
    found: list[LeftWaiting] = []
    for place in dict.fromkeys(way.place for way in incident.capture.source.other_ways):
        waiting = tuple(s for s in standings.values() if s.place == place and is_waiting_for_ranks(s.stack))
        ways = tuple(w for w in incident.capture.source.other_ways if w.place == place)
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
