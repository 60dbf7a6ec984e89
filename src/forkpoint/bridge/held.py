"""Where a rank is held on its own: its live stack, or what stands between its last call and the one it is missed in."""

from collections.abc import Iterator

from forkpoint.bridge.around import decision_fork, place_fork
from forkpoint.bridge.fork import ForkKind
from forkpoint.bridge.places import Chain, Place
from forkpoint.bridge.sides import live_of, raised_by
from forkpoint.bridge.tree import callees_between, deciding, enclosing, way_of
from forkpoint.bridge.walk import Walk
from forkpoint.bridge.weighed import Weighed
from forkpoint.bridge.why import NOT_SHOWN
from forkpoint.bridge.words import tell_condition
from forkpoint.model.incident import Incident
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Verdict
from forkpoint.source.code import Function

_ABOVE = 0.8
"""The branch that led a rank there explains, but the frame that holds it is where it is."""
_DEEPER = 0.9
"""Per call further down: what is nearer to the line is likelier meant."""
_DEPTH = 3
_THE_CALL = 0.4
"""The call that does not finish, where nothing shows what holds it."""


def find_held(incident: Incident, verdict: Verdict, walk: Walk) -> Iterator[Weighed]:
    """From a live stack: the frame, and the decisions above it that can differ by rank."""
    cohort = _cohort_of(verdict)
    chain = walk.places.chain(live_of(verdict.suspects, incident))
    if not chain:
        return
    who = name_ranks(verdict.suspects, 2)
    above = list(_above(chain, who, cohort, walk))
    under = f", under {tell_condition(above[0].fork.test, above[0].fork.function)}" if above else ""
    frame = place_fork(ForkKind.HELD, chain[-1], walk.places, f"{who} is held here{under}", cohort)
    if frame is not None:
        yield Weighed(frame, 1.0)
    yield from above


def _above(chain: Chain, who: str, cohort: int | None, walk: Walk) -> Iterator[Weighed]:
    """Decisions around the frames that can differ by rank, the innermost first."""
    for depth, place in enumerate(reversed(chain)):
        for node in enclosing(place):
            told = f"{who} {way_of(node, place.line)}, others did not"
            fork, differs = decision_fork(node, place.function, walk.analysis, told, cohort)
            if differs > NOT_SHOWN:
                yield Weighed(fork, differs * _ABOVE * _DEEPER**depth)


def find_between(before: Chain, now: Chain, verdict: Verdict, walk: Walk) -> Iterator[Weighed]:
    """Decisions that can differ, in what runs between the last call and this one; and the call itself."""
    if not now:
        return
    cohort, who = _cohort_of(verdict), name_ranks(verdict.suspects, 2) if verdict.suspects else "a rank"
    place = now[-1]
    call = place_fork(ForkKind.HELD, place, walk.places, "this call does not finish", cohort)
    if call is not None:
        yield Weighed(call, _THE_CALL)
    for near, function, level in _between(before, place, walk):
        for node in deciding(function):
            if level == 0 and not near.start <= node.lineno < near.stop:
                continue
            sentence = f"{who} can do something else before the call"
            fork, differs = decision_fork(node, function, walk.analysis, sentence, cohort)
            if differs > NOT_SHOWN:
                yield Weighed(fork, differs * _DEEPER**level)


def find_standing(incident: Incident, verdict: Verdict, walk: Walk) -> Iterator[Weighed]:
    """Nothing is decided: where the ranks stand, or what all of them raised."""
    for place, cohort in enumerate(verdict.divergence.cohorts if verdict.divergence else ()):
        chain = walk.places.chain(cohort.stack)
        told = f"{name_ranks(cohort.ranks, 2)} stand here"
        fork = place_fork(ForkKind.HELD, chain[-1], walk.places, told, place) if chain else None
        if fork is not None:
            yield Weighed(fork, _THE_CALL)
    raised = [e for r in incident.timeline.world if (e := raised_by((r,), incident))]
    chains = {walk.places.chain(e.stack) for e in raised}
    if verdict.divergence is None and len(raised) > 1 and len(chains) == 1 and (chain := chains.pop()):
        who = name_ranks((e.rank for e in raised if e.rank is not None), 2)
        fork = place_fork(ForkKind.RAISED, chain[-1], walk.places, f"{who} raised an exception here", None)
        if fork is not None:
            yield Weighed(fork, _THE_CALL)


def _between(before: Chain, place: Place, walk: Walk) -> Iterator[tuple[range, Function, int]]:
    """The lines of the function from its last call (or the loop around) up to this one, and the functions they run."""
    function = place.function
    last = [p.line for p in before if p.function is function and p.line < place.line]
    outermost = [n.lineno for n in enclosing(place)][-1:]
    start = max([*last, *outermost], default=function.line)
    lines = range(start, place.line + 1)
    yield lines, function, 0
    for callee, _, level in callees_between(lines, function, walk.analysis, _DEPTH):
        yield lines, callee, level


def _cohort_of(verdict: Verdict) -> int | None:
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    return next((i for i, c in enumerate(cohorts) if set(c.ranks) & set(verdict.suspects)), None)
