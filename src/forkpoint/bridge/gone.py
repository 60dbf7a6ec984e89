"""Where a rank raised an exception and left: the frames of the traceback in its log."""

from collections.abc import Iterator

from forkpoint.bridge.around import decision_fork, place_fork
from forkpoint.bridge.fork import ForkKind
from forkpoint.bridge.sides import raised_by
from forkpoint.bridge.walk import ProgramFlow
from forkpoint.bridge.weighed import Weighed
from forkpoint.bridge.why import NOT_SHOWN
from forkpoint.bridge.words import tell_decision
from forkpoint.model.incident import Incident
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Verdict
from forkpoint.source.syntax import enclosing

_RAISED = 0.5
"""An exception is the last thing that happened, and may be a consequence of the cause."""
_UP = 0.8
_FRAMES = 2
"""Of the traceback: the function that raised, and its caller."""


def find_raised(incident: Incident, verdict: Verdict, flow: ProgramFlow) -> Iterator[Weighed]:
    event = raised_by(verdict.suspects, incident)
    chain = flow.places.chain(event.stack) if event else ()
    if event is None or not chain:
        return
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    cohort = next((i for i, c in enumerate(cohorts) if set(c.ranks) & set(verdict.suspects)), None)
    who, what = name_ranks(verdict.suspects, 2), (event.exception or event.text).partition(":")[0]
    weight = _RAISED
    for place in chain[: -_FRAMES - 1 : -1]:
        fork = place_fork(
            ForkKind.RAISED, place, flow.places, f"{who} raised {what} here and left the other ranks", cohort
        )
        if fork is not None:
            yield Weighed(fork, weight)
        for node in enclosing(place.line, place.function):
            told = tell_decision(node, place.line, who, place.function)
            branch, differs = decision_fork(node, place.function, flow.analysis, told, cohort)
            if differs > NOT_SHOWN:
                yield Weighed(branch, differs * weight)
        weight *= _UP
