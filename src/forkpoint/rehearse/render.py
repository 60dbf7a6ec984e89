"""A rehearsal as text and as JSON (schema `forkpoint.rehearsal/1`, `rehearsal.schema.json` beside this file)."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Final

import msgspec

from forkpoint.model.world import name_ranks
from forkpoint.rehearse.model import Rehearsal, TrialOutcome, TrialResult

SCHEMA: Final = "forkpoint.rehearsal/1"


@dataclass(frozen=True, slots=True)
class Hazard:
    """A place where ranks diverge, and the trials that showed it."""

    place: str
    results: tuple[TrialResult, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(result.trial.kind for result in self.results))

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({result.trial.rank for result in self.results}))


def find_hazards(results: Sequence[TrialResult]) -> tuple[Hazard, ...]:
    """Trials that diverge at the same line show the same mistake."""
    by_place: dict[str, list[TrialResult]] = {}
    for result in results:
        if result.outcome is TrialOutcome.PARTS:
            by_place.setdefault(place_of(result), []).append(result)
    return tuple(Hazard(place, tuple(found)) for place, found in by_place.items())


def place_of(result: TrialResult) -> str:
    """Where the disturbed rank took another path; else the engine's first site if it names this rank; else where it was
    disturbed. For mismatched calls, or calls in another order, the site of the call.
    """
    verdict = result.verdict or {}
    named = verdict.get("sites", [])[:1]
    knows = result.fork is None and verdict.get("suspects") == [result.trial.rank]
    if named and (knows or verdict["cause"] in ("metadata-mismatch", "order-inversion")):
        return f"{named[0]['file']}:{named[0]['line']}"
    if result.fork is not None:
        return f"{result.fork.file}:{result.fork.line}"
    site = (result.effect.site if result.effect else None) or result.trial.target.site
    if site is not None:
        return str(site)
    return f"{named[0]['file']}:{named[0]['line']}" if named else "no line of the source"


def tell_fork(result: TrialResult) -> str:
    """Where the disturbed rank left the others, in a sentence; "" if unknown."""
    fork = result.fork
    if fork is None:
        return ""
    ways = [f"to line {line}" if line else "into another file" for line in (fork.went_to, fork.other_went_to)]
    return f"after {fork.file}:{fork.line} rank {result.trial.rank} went {ways[0]}, rank {fork.other} {ways[1]}"


# ---------------------------------------------------------------------------------------------------------------- text


def render_text(rehearsal: Rehearsal, width: int) -> str:
    lines = [_calm_line(rehearsal), ""]
    for number, hazard in enumerate(find_hazards(rehearsal.results), 1):
        lines += [*_hazard_lines(number, hazard, width), ""]
    for result in rehearsal.results:
        if result.outcome is not TrialOutcome.PARTS:
            lines.append(_short_line(result, width))
    lines += ["", *(f"cannot happen here: {why}" for why in rehearsal.skipped)]
    return "\n".join([*lines, count_line(rehearsal)])


def _calm_line(rehearsal: Rehearsal) -> str:
    calm = rehearsal.calm
    steps = min((told.steps for told in calm.ranks), default=0)
    places = len({use.key for told in calm.ranks for use in told.uses})
    end = "to its end" if calm.complete else "as far as time allowed"
    return f"calm run: {calm.world} ranks, {steps} steps, {end}, {calm.seconds:.1f} s, {places} rank-local things used"


def _hazard_lines(number: int, hazard: Hazard, width: int) -> Iterator[str]:
    first = hazard.results[0]
    yield f"{number}. ranks diverge at {hazard.place}   ({', '.join(hazard.kinds)}; {name_ranks(hazard.ranks)})"
    effect = first.effect.says if first.effect else "nothing was disturbed"
    where = f" at {first.effect.site}" if first.effect and first.effect.site else ""
    yield fill(f"rank {first.trial.rank}: {effect}{where}", width, initial_indent="   ", subsequent_indent="   ")
    if told := tell_fork(first):
        yield fill(told, width, initial_indent="   ", subsequent_indent="   ")
    yield fill(first.says, width, initial_indent="   ", subsequent_indent="   ")
    verdict = first.verdict or {}
    for word, name in (("probe", "probes"), ("fix", "fixes")):
        for item in verdict.get(name, [])[:1]:
            yield fill(f"{word}: {item['title']}", width, initial_indent="   ", subsequent_indent="     ")
    for result in hazard.results:
        checked = f"; with the fix: {result.verified.outcome}" if result.verified else ""
        yield f"   trial {result.trial.number}: {result.trial.name} ({result.seconds:.1f} s{checked})"


def _short_line(result: TrialResult, width: int) -> str:
    text = f"{result.outcome:<11} {result.trial.number:>3} {result.trial.name}: {result.says}"
    return text if len(text) <= width else f"{text[: width - 3]}..."


def count_line(rehearsal: Rehearsal) -> str:
    counts = Counter(result.outcome for result in rehearsal.results)
    told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in TrialOutcome)
    left = len(rehearsal.plan) - len(rehearsal.results)
    more = f"; {left} more were planned" if left > 0 else ""
    return f"{len(rehearsal.results)} trials in {rehearsal.seconds:.0f} s: {told}{more}"


# ---------------------------------------------------------------------------------------------------------------- JSON


def render_json(rehearsal: Rehearsal) -> str:
    calm = rehearsal.calm
    told = {
        "schema": SCHEMA,
        "command": rehearsal.command,
        "seed": rehearsal.seed,
        "seconds": round(rehearsal.seconds, 3),
        "calm": {
            "ranks": calm.world,
            "steps": min((told.steps for told in calm.ranks), default=0),
            "seconds": round(calm.seconds, 3),
            "complete": calm.complete,
        },
        "counts": {str(o): sum(r.outcome is o for r in rehearsal.results) for o in TrialOutcome},
        "hazards": [
            {"place": h.place, "kinds": h.kinds, "ranks": h.ranks, "trials": [r.trial.number for r in h.results]}
            for h in find_hazards(rehearsal.results)
        ],
        "trials": [trial_value(result) for result in rehearsal.results],
        "planned": len(rehearsal.plan),
        "cannot_happen": rehearsal.skipped,
    }
    return json.dumps(told, indent=2)


def trial_value(result: TrialResult) -> dict[str, Any]:
    trial = result.trial
    return {
        "trial": trial.number,
        "kind": trial.kind,
        "rank": trial.rank,
        "site": msgspec.to_builtins(trial.target.site),
        "what": trial.target.label,
        "at": trial.at,
        "outcome": str(result.outcome),
        "says": result.says,
        "seconds": round(result.seconds, 3),
        "effect": msgspec.to_builtins(result.effect),
        "fork": msgspec.to_builtins(result.fork),
        "verdict": result.verdict,
        "evidence": result.evidence or None,
        "verified": msgspec.to_builtins(result.verified),
    }
