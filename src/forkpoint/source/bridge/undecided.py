"""Undecided verdicts: where ranks were, and which decisions of the program could have kept others from that call.

Nothing here says what happened. It lists what an engineer would look at first, and each sentence says so.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.model.frames import short_name
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Cause, Verdict
from forkpoint.model.world import name_ranks
from forkpoint.source.apis import Origin
from forkpoint.source.bridge.arguments import find_argument, find_order
from forkpoint.source.bridge.fork import Fork, ForkKind, Separation, Weighed
from forkpoint.source.bridge.leads import find_leads
from forkpoint.source.bridge.libraries import find_steering
from forkpoint.source.bridge.passes import find_unused, left_gradients_out
from forkpoint.source.bridge.places import CallPlace, find_places
from forkpoint.source.bridge.search import ProgramFlow
from forkpoint.source.bridge.separate import LEAST, UNEXPLAINED, find_missing, find_separations, weigh, why_decided
from forkpoint.source.bridge.sides import ForkSide, Sides, raised_by
from forkpoint.source.bridge.stuck import find_held
from forkpoint.source.bridge.why import because, place_fork, tell_condition
from forkpoint.source.flow import Turn

_HERE = LEAST
"""It is certain that ranks wait here, but this is rarely where it went wrong."""
_ALONE = 0.25
_PERHAPS = 0.5
_ON_PURPOSE = 0.3
_PER_COST = 0.9
_MOST_PLACES = 3
_CALLS = (Cause.METADATA_MISMATCH, Cause.DIVERGENT_PATH, Cause.ORDER_INVERSION)


def find_undecided(incident: Incident, verdict: Verdict, flow: ProgramFlow) -> Iterator[Weighed]:
    places = find_places(incident, verdict, flow)
    yield from _standing(places, incident, flow)
    for supposed in _supposed(verdict):
        if supposed.cause not in _CALLS:  # it waits for ranks, and is not stuck
            yield from (_perhaps(w) for w in find_held(incident, supposed, flow))
        yield from (_perhaps(w) for w in find_leads(incident, supposed, places, flow))
    if any(left_gradients_out(raised_by((rank,), incident)) for rank in incident.timeline.world):
        yield from find_unused(None, flow)
    likely = {h.cause for h in verdict.hypotheses[:2]}
    if likely and likely <= {Cause.HEALTHY, Cause.NEVER_JOINED, Cause.TRANSPORT}:
        return
    is_path = not likely or bool(likely & {*_CALLS})
    if len(places) > 1 and is_path:
        yield from _between(places[0], places[1], verdict, flow)
    in_order = any(Cause.ORDER_INVERSION in (h.cause, *h.alternatives) for h in verdict.hypotheses[:2])
    for place in places[:_MOST_PLACES]:
        yield from find_ways_past(place, flow)
        if in_order and place.chain:
            yield from (_perhaps(w) for w in find_order(place.chain, place.cohort, flow, at_call=False))
        if Cause.METADATA_MISMATCH in likely and not flow.places.outside(place.stack):
            likelier = 1.0 if verdict.hypotheses[0].cause is Cause.METADATA_MISMATCH else _PERHAPS
            yield from (_perhaps(w, _usual(w.fork) * likelier) for w in find_argument(place.chain, place.cohort, flow))
    if _is_in_library(incident, verdict, flow) and is_path:
        yield from (replace(w, weight=w.weight * _PERHAPS) for w in find_steering(None, flow))


def _supposed(verdict: Verdict) -> list[Verdict]:
    """What the first two hypotheses say, as if it were decided, if both concern the same single rank."""
    first = [h for h in verdict.hypotheses[:2] if len(h.suspects) == 1]
    return [replace(verdict, cause=h.cause, suspects=h.suspects) for h in first if h.suspects == first[0].suspects]


def _standing(places: list[CallPlace], incident: Incident, flow: ProgramFlow) -> Iterator[Weighed]:
    for place in places:
        waits = f"{name_ranks(place.waiting, 2)} {'waits' if len(place.waiting) == 1 else 'wait'} here"
        failed = f"a call from here failed on {name_ranks(place.failed, 2) if place.failed else 'a rank'}"
        told = "; ".join(
            [*([waits] if place.waiting else []), *([failed] if place.failed or not place.waiting else [])]
        )
        fork = place_fork(ForkKind.HELD, place.chain[-1], flow.places, told, place.cohort)
        # An exception that a few ranks raised by themselves says more than what their end did to the rest.
        alone = bool(place.failed) and len(places) > 1 and all(raised_by((r,), incident) for r in place.failed)
        if fork is not None:
            yield Weighed(fork, _ALONE if alone and not place.waiting else _HERE)


def _between(one: CallPlace, other: CallPlace, verdict: Verdict, flow: ProgramFlow) -> Iterator[Weighed]:
    """Decisions after which a rank reaches one of two calls and not the other; those without a reason why ranks decide
    differently only if it is known which rank did.
    """
    first, second = (ForkSide(p.ranks, p.cohort, "call", p.stack, None, None, recorded=False) for p in (one, other))
    sides = Sides(first, second, (), named=False)
    for separation in find_separations(sides, flow):
        weighed = weigh(separation, sides, flow.analysis)
        if weighed.fork.reasons or verdict.suspects:
            told = _perhaps(weighed, _usual(weighed.fork))
            yield replace(told, weight=weighed.weight) if verdict.suspects else told


def find_ways_past(place: CallPlace, flow: ProgramFlow) -> Iterator[Weighed]:
    """Decisions that can differ by rank and make a rank miss the call."""
    at = place.chain[-1]
    call = f"the call at {short_name(at.function.module.path)}:{at.line}, to which {name_ranks(place.ranks, 2)} came"
    for separation in find_missing(place.chain, flow):
        reasons, differs = why_decided(separation.turn, separation.function, flow.analysis)
        told = f"{_tell_missing(separation)} misses {call}{because(reasons) or UNEXPLAINED}"
        turn = separation.turn
        fork = Fork(_kind(turn), separation.function, turn.node, turn.test, reasons, None, None, 0.0, told)
        yield Weighed(fork, differs * _PERHAPS * _usual(fork) * _PER_COST**separation.slack)


def _usual(fork: Fork) -> float:
    """Jobs give ranks different roles on purpose, and usually end their loops together."""
    by_rank = all(reason.origin is Origin.RANK for reason in fork.reasons)
    return _ON_PURPOSE if (fork.reasons and by_rank) or fork.kind is ForkKind.LOOP else 1.0


def _tell_missing(separation: Separation) -> str:
    turn = separation.odd or separation.turn
    condition = tell_condition(turn.test, separation.function)
    match turn.node:
        case ast.ExceptHandler():
            return f"a rank that catches {tell_condition(turn.node.type, separation.function)} here"
        case ast.For() | ast.AsyncFor() | ast.While():
            return f"a rank on which the loop over {condition} is of another length"
        case ast.If():
            return f"a rank on which {condition} is {'true' if turn.block is turn.node.body else 'false'}"
        case _:
            return f"a rank on which {condition} goes another way"


def _kind(turn: Turn) -> ForkKind:
    if isinstance(turn.node, ast.ExceptHandler):
        return ForkKind.CAUGHT
    return ForkKind.LOOP if isinstance(turn.node, ast.For | ast.AsyncFor | ast.While) else ForkKind.SKIPPED


def _perhaps(weighed: Weighed, usual: float = 1.0) -> Weighed:
    fork = weighed.fork
    return Weighed(replace(fork, sentence=f"perhaps {fork.sentence}", headlines=()), weighed.weight * _PERHAPS * usual)


def _is_in_library(incident: Incident, verdict: Verdict, flow: ProgramFlow) -> bool:
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    said = (event.stack for events in incident.said.values() for event in events if event.stack)
    return flow.places.outside(*(c.stack for c in cohorts), *said)
