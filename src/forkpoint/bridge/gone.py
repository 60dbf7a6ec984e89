"""Where a rank's own exception took it away: the frames of the traceback in its log."""

from collections.abc import Iterator

from forkpoint.bridge.around import decision_fork, place_fork
from forkpoint.bridge.fork import ForkKind
from forkpoint.bridge.sides import raised_by
from forkpoint.bridge.tree import enclosing, way_of
from forkpoint.bridge.walk import Walk
from forkpoint.bridge.weighed import Weighed
from forkpoint.bridge.why import NOT_SHOWN
from forkpoint.model.incident import Incident
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Verdict

_RAISED = 0.5
"""An exception is the last thing that happened, and sometimes only follows from what happened first."""
_UP = 0.8
_FRAMES = 2
"""Of the traceback: what raised, and who called it."""


def find_raised(incident: Incident, verdict: Verdict, walk: Walk) -> Iterator[Weighed]:
    event = raised_by(verdict.suspects, incident)
    chain = walk.places.chain(event.stack) if event else ()
    if event is None or not chain:
        return
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    cohort = next((i for i, c in enumerate(cohorts) if set(c.ranks) & set(verdict.suspects)), None)
    who, what = name_ranks(verdict.suspects, 2), (event.exception or event.text).partition(":")[0]
    weight = _RAISED
    for place in chain[: -_FRAMES - 1 : -1]:
        fork = place_fork(ForkKind.RAISED, place, walk.places, f"{who} raised {what} here and left the others", cohort)
        if fork is not None:
            yield Weighed(fork, weight)
        for node in enclosing(place):
            told = f"{who} {way_of(node, place.line)}"
            branch, differs = decision_fork(node, place.function, walk.analysis, told, cohort)
            if differs > NOT_SHOWN:
                yield Weighed(branch, differs * weight)
        weight *= _UP
