"""Divergence + source -> sites: the branch at which the ranks separated.

The last call that both sides made and the next call of each are three points of the program. The fork is a decision
between them after which one side's call can be reached and the other's cannot, and whose condition can differ by rank.

"""

import ast
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from forkpoint.model.headline import fit_headline
from forkpoint.model.incident import Incident, PartingKind
from forkpoint.model.verdict import Cause, Site, Verdict
from forkpoint.model.world import name_ranks
from forkpoint.source.analysis import Analysis
from forkpoint.source.bridge.arguments import find_argument, find_dispatched, find_order, find_passed, find_threads
from forkpoint.source.bridge.fork import SURE, Fork, ForkKind, Weighed
from forkpoint.source.bridge.leads import find_leads, find_taken
from forkpoint.source.bridge.libraries import find_called_back, find_steering
from forkpoint.source.bridge.passes import (
    find_unsynced,
    find_unused,
    in_a_pass,
    in_same_pass,
    left_gradients_out,
)
from forkpoint.source.bridge.places import find_places
from forkpoint.source.bridge.printed import find_printed
from forkpoint.source.bridge.search import ProgramFlow
from forkpoint.source.bridge.separate import LEAST, find_separations, program_flow, weigh
from forkpoint.source.bridge.sides import Chain, Sides, find_sides, live_of, raised_by
from forkpoint.source.bridge.stuck import find_above, find_between, find_held, find_raised
from forkpoint.source.bridge.undecided import find_undecided, find_ways_past
from forkpoint.source.syntax import shortened

__all__ = ["Fork", "ForkKind", "bridge", "find_forks"]

MAX_FORKS = 5


def bridge(incident: Incident, verdict: Verdict, analysis: Analysis) -> tuple[Fork, ...]:
    """Most likely first. Forks that explain the divergence equally well share the confidence."""
    return find_forks(incident, verdict, analysis)[0]


def find_forks(incident: Incident, verdict: Verdict, analysis: Analysis) -> tuple[tuple[Fork, ...], tuple[str, ...]]:
    """Forks, and notes on frames that the source does not match. Source of another version gives no forks."""
    if verdict.cause in {Cause.HEALTHY, Cause.TRANSPORT}:
        return (), ()
    flow = program_flow(incident.capture, analysis)
    found = list(_candidates(incident, verdict, flow))
    forks = _ranked([*found, *find_printed(incident, verdict, found, flow)])
    return () if flow.places.misfits else forks, tuple(flow.places.notes)


def _candidates(incident: Incident, verdict: Verdict, flow: ProgramFlow) -> Iterator[Weighed]:
    sides = find_sides(incident, verdict)
    yield from find_raised(incident, verdict, flow)
    if left_gradients_out(raised_by(verdict.suspects, incident)):
        yield from find_unused(None, flow)
    match verdict.cause:
        case Cause.HOST_STALL | Cause.NEVER_JOINED | Cause.STRAGGLER | Cause.GPU_STALL:
            yield from _stalled(incident, verdict, sides, flow)
        case Cause.METADATA_MISMATCH if sides is not None:
            chain = flow.places.chain(sides.odd.stack)
            if chain:
                yield from find_argument(chain, sides.odd.cohort, flow)
        case Cause.DIVERGENT_PATH | Cause.ORDER_INVERSION if sides is not None:
            yield from _separated(verdict, sides, flow)
            if verdict.cause is Cause.ORDER_INVERSION:
                yield from find_threads(incident, flow)
        case Cause.RANK_LOST if sides is not None:
            # A lost rank has left every loop, so a loop alone proves nothing.
            loops = ForkKind.LOOP
            yield from (w for w in _separated(verdict, sides, flow) if w.fork.kind is not loops or w.fork.reasons)
        case Cause.ORDER_INVERSION if verdict.divergence is not None:
            for chain in {flow.places.chain(c.stack) for c in verdict.divergence.cohorts} - {()}:
                yield from find_order(chain, None, flow, at_call=True)
        case Cause.DIVERGENT_PATH if verdict.divergence is not None:
            chains = {flow.places.chain(c.stack) for c in verdict.divergence.cohorts}
            if len(chains) == 1 and (chain := chains.pop()):
                yield from find_argument(chain, None, flow)
        case Cause.INCONCLUSIVE:
            yield from find_undecided(incident, verdict, flow)
        case Cause.DIVERGENT_PATH if verdict.divergence is None:  # nothing recorded shows where they parted
            yield from find_undecided(incident, verdict, flow)
        case _:
            pass
    if verdict.cause is Cause.INCONCLUSIVE:
        return
    places = find_places(incident, verdict, flow)
    if verdict.cause is Cause.DIVERGENT_PATH and sides is not None and not flow.places.chain(sides.odd.stack):
        yield from (w for place in places if place.chain for w in find_ways_past(place, flow))
    yield from find_taken(incident, verdict, places, flow)
    if not flow.places.chain(live_of(verdict.suspects, incident)):
        yield from find_leads(incident, verdict, places, flow)


def _separated(verdict: Verdict, sides: Sides, flow: ProgramFlow) -> Iterator[Weighed]:
    found = list(_weighed(sides, flow))
    usual, odd = flow.places.chain(sides.usual.stack), flow.places.chain(sides.odd.stack)
    yield from found
    explained = any(w.weight >= LEAST for w in found)
    if odd and not usual and not explained:
        yield from find_above(odd, name_ranks(verdict.suspects, 2), sides.odd.cohort, flow)
    if in_same_pass(sides, flow) or (not explained and (in_a_pass(sides.usual, flow) or in_a_pass(sides.odd, flow))):
        yield from find_unused(sides.odd.cohort, flow)
        yield from find_unsynced(sides.odd.cohort, flow)
    if not explained and flow.places.outside(sides.usual.stack, sides.odd.stack):
        yield from find_called_back(sides, flow)
        yield from find_steering(sides.odd.cohort, flow)
    yield from find_dispatched(usual, odd, sides.odd.cohort, flow)
    yield from find_passed(found, (*(flow.places.chain(s) for s in sides.before[:1]), odd, usual), flow.places)
    skipped = verdict.divergence is not None and verdict.divergence.shift is not None
    apart = bool(odd) and not skipped and usual[:1] != () and odd[0].function is not usual[0].function
    if usual and (verdict.cause is Cause.ORDER_INVERSION or apart):
        at_call = not any(w.weight >= LEAST and w.fork.kind is not ForkKind.LOOP for w in found)
        yield from find_order(usual, sides.usual.cohort, flow, at_call=at_call)
        yield from find_order(odd, sides.odd.cohort, flow, at_call=at_call) if odd else ()
    elif odd and odd == usual and sides.odd.op == sides.usual.op and not explained:
        yield from find_argument(odd, sides.odd.cohort, flow)


def _weighed(sides: Sides, flow: ProgramFlow) -> Iterable[Weighed]:
    """One fork per decision. If it can belong to this round or an earlier one, only this one is reported."""
    best: dict[ast.AST, Weighed] = {}
    for separation in sorted(find_separations(sides, flow), key=lambda p: p.slip):
        weighed, node = weigh(separation, sides, flow.analysis), separation.turn.node
        told = best.get(node, weighed)
        best[node] = replace(told, weight=max(told.weight, weighed.weight))
    return best.values()


def _stalled(incident: Incident, verdict: Verdict, sides: Sides | None, flow: ProgramFlow) -> Iterator[Weighed]:
    divergence = verdict.divergence
    if divergence is None or divergence.how is not PartingKind.STUCK:
        yield from find_held(incident, verdict, flow)
        return
    now = next((c for cohort in divergence.cohorts if (c := flow.places.chain(cohort.stack))), ())
    before: Chain = next((c for s in (sides.before if sides else ()) if (c := flow.places.chain(s))), ())
    yield from find_between(before, now, verdict, flow)


def _ranked(found: list[Weighed]) -> tuple[Fork, ...]:
    best: dict[tuple[str, int], Weighed] = {}
    for weighed in found:
        key = (weighed.fork.function.module.path, weighed.fork.node.lineno)
        if weighed.weight >= LEAST and (key not in best or best[key].weight < weighed.weight):
            best[key] = weighed
    ordered = sorted(best.items(), key=lambda item: (-item[1].weight, item[0]))[:MAX_FORKS]
    total = sum(w.weight for _, w in ordered)
    return tuple(replace(w.fork, confidence=w.weight * w.weight / total) for _, w in ordered)


# ---------------------------------------------------------------------------------------------------------------------
# Verdict -> Verdict with sites in the source. The judgement itself does not change.

_MAX_CONDITION = 120
_MAX_NOTES = 3
_FORKED = (Cause.DIVERGENT_PATH, Cause.ORDER_INVERSION)
"""Causes for which the fork is the explanation. For others it only names the condition under which something happened
that the headline reports.
"""


def attach_sites(
    incident: Incident, verdict: Verdict, analysis: Analysis, source: Sequence[str]
) -> tuple[Verdict, tuple[Fork, ...]]:
    """`source`: the folders or files that the program was read from."""
    forks, notes = find_forks(incident, verdict, analysis)
    unread = [f"{relative(n.file, source)}: {n.text}" for n in analysis.program.notes]
    notes = (*verdict.coverage.notes, *unread[:_MAX_NOTES], *notes[:_MAX_NOTES])
    found = sites(forks, source)
    first = f" {found[0].file}:{found[0].line}: {found[0].why}." if found and forks[0].confidence > SURE else ""
    told = forks[0].headlines if first and verdict.cause in _FORKED else ()
    if verdict.cause is Cause.ORDER_INVERSION and forks and forks[0].kind is not ForkKind.ORDER:
        told = (*(f"{one}, so their calls come in different orders" for one in told), *told)
    attached = replace(
        verdict,
        headline=fit_headline(told, verdict.headline),
        sites=found or tuple(_located(site, analysis, source) for site in verdict.sites),
        summary=f"{verdict.summary}{first}",
        coverage=replace(verdict.coverage, notes=notes),
    )
    return attached, forks


def sites(forks: tuple[Fork, ...], source: Sequence[str] = ()) -> tuple[Site, ...]:
    return tuple(
        Site(
            file=relative(fork.function.module.path, source),
            line=fork.node.lineno,
            function=fork.function.name,
            condition=_condition(fork),
            why=fork.sentence,
            cohort=fork.cohort,
        )
        for fork in forks
    )


def _located(site: Site, analysis: Analysis, source: Sequence[str]) -> Site:
    """A stack line, with its path below the source that was given."""
    module = analysis.program.module_at(site.file)
    fits = module is not None and site.line <= len(module.lines)
    return replace(site, file=relative(module.path, source)) if module is not None and fits else site


def relative(path: str, source: Sequence[str]) -> str:
    """The path below the given folder that contains it."""
    for root in source:
        inside = os.path.relpath(path, root)
        if Path(root).is_dir() and not inside.startswith(os.pardir):
            return inside
    return path


def _condition(fork: Fork) -> str | None:
    if isinstance(fork.node, ast.ExceptHandler):
        return f"except {fork.function.module.source(fork.node.type)}" if fork.node.type is not None else "except"
    return shortened(fork.function.module.source(fork.test), _MAX_CONDITION) if fork.test is not None else None
