"""Ranks that reached their current call while handling an exception of their own code."""

from itertools import pairwise

from msgspec import Struct

from forkpoint.judge.facts.blame import is_victim_text
from forkpoint.model.frames import user_place
from forkpoint.model.incident import Divergence, Incident, PartingKind
from forkpoint.model.log import LogEvent, LogKind

_WHILE_HANDLED = "while another was handled"


class Handling(Struct, frozen=True):
    rank: int
    raised: LogEvent
    """What its own code raised."""
    ended: LogEvent
    """How the call ended that it made in the `except` or `finally`."""


def find_handling(divergence: Divergence, incident: Incident) -> tuple[Handling, ...]:
    """Of the ranks that part here, if nothing else shows who left: those that an exception led elsewhere.

    An exception that a log only mentions may have been handled long ago. Python prints an exception raised during
    handling together with the one being handled; if it was raised by the very call that the rank is recorded to be in,
    then the first one led it there.
    """
    if divergence.how not in (PartingKind.CYCLE, PartingKind.METADATA):
        return ()
    ranks = set(divergence.cycle) or {r for side in divergence.sides for r in side}
    found = [h for r in sorted(ranks) if (h := _handling(r, incident))]
    return () if divergence.odd or len(found) == len(ranks) else tuple(found)


def _handling(rank: int, incident: Incident) -> Handling | None:
    stands = incident.timeline.positions.get(rank, ())
    told = [e for e in incident.said.get(rank, ()) if e.exception]
    for raised, ended in pairwise(told):
        chained = ended.detail("chain") == _WHILE_HANDLED and raised.kind is LogKind.EXCEPTION
        place = user_place(ended.stack) if chained and not is_victim_text(raised.text) else None
        if place is not None and stands and user_place(stands[0].op.stack) == place:
            return Handling(rank, raised, ended)
    return None
