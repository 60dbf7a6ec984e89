"""A rehearsal as text, as JSON (schema `forkpoint.rehearsal/1`, `rehearsal.schema.json` beside this file), as JUnit XML and as a page."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape as quoted
from pathlib import Path
from textwrap import fill
from typing import Any, Final
from xml.etree import ElementTree as ET

import msgspec

from forkpoint.evidence import read
from forkpoint.model.world import name_ranks
from forkpoint.pipeline import diagnose
from forkpoint.rehearse.model import Rehearsal, TrialOutcome, TrialResult
from forkpoint.report.page import render_html

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
        return tuple(sorted({rank for result in self.results for rank in result.trial.ranks}))


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
    knows = result.fork is None and verdict.get("suspects") == [*result.trial.ranks]
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
        "together": trial.target.together,
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


# ---------------------------------------------------------------------------------------------------------------------
# JUnit XML: one test for each trial, so that CI shows which failed and why.


def render_junit(rehearsal: Rehearsal) -> str:
    results = rehearsal.results
    suite = ET.Element(
        "testsuite",
        name="forkpoint rehearse",
        tests=str(len(results)),
        failures=str(len(rehearsal.parts)),
        skipped=str(sum(r.outcome is TrialOutcome.NOT_REACHED for r in results)),
        errors="0",
        time=f"{rehearsal.seconds:.3f}",
    )
    for result in results:
        _add(suite, result)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _add(suite: ET.Element, result: TrialResult) -> None:
    trial = result.trial
    case = ET.SubElement(
        suite, "testcase", classname=f"rehearse.{trial.kind}", name=_plain(trial.name), time=f"{result.seconds:.3f}"
    )
    if result.outcome is TrialOutcome.NOT_REACHED:
        ET.SubElement(case, "skipped", message=_plain(result.says))
    if result.outcome is TrialOutcome.PARTS:
        text = "\n".join(line for line in (_effect(result), tell_fork(result), result.says, *_fixes(result)) if line)
        failure = ET.SubElement(case, "failure", message=_plain(f"ranks diverge at {place_of(result)}"), type="parts")
        failure.text = _plain(text)


def _effect(result: TrialResult) -> str:
    return f"rank {result.trial.rank}: {result.effect.says}" if result.effect else ""


def _fixes(result: TrialResult) -> list[str]:
    return [f"fix: {fix['title']}" for fix in (result.verdict or {}).get("fixes", [])[:1]]


def _plain(text: str) -> str:
    """XML does not allow control characters."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)


# ---------------------------------------------------------------------------------------------------------------------
# One self-contained page: what was tried on which rank, what happened, and each place where ranks diverge.


_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --parts: #c62828; --agrees: #2e7d32; --quiet: #777; }
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
code, pre { font: 0.9em/1.4 ui-monospace, monospace; } pre { overflow-x: auto; padding: .6rem; border: 1px solid var(--line); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .5rem; text-align: left; vertical-align: top; }
.parts { color: var(--parts); font-weight: 600; } .agrees { color: var(--agrees); } .not { color: var(--quiet); }
section { border: 1px solid var(--line); border-left: .4rem solid var(--parts); padding: 0 1rem 1rem; margin: 1rem 0; }
small { color: var(--quiet); }
"""


def render_page(rehearsal: Rehearsal, reports: dict[int, str]) -> str:
    """`reports`: trial -> the page of its incident, relative to this one."""
    hazards = find_hazards(rehearsal.results)
    head = (
        f"{len(hazards)} place{'s' * (len(hazards) != 1)} where ranks diverge"
        if hazards
        else "all ranks react the same way"
    )
    return "".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>rehearsal: {quoted(head)}</title><style>{_STYLE}</style>",
            f"<h1>{quoted(head[0].upper() + head[1:])}</h1>",
            f"<p><code>{quoted(' '.join(rehearsal.command))}</code><br><small>{quoted(count_line(rehearsal))}, ",
            f"seed {rehearsal.seed}, {rehearsal.calm.world} ranks</small></p>",
            *(_hazard(hazard, reports) for hazard in hazards),
            *_table(rehearsal.results, reports),
            *_skipped(rehearsal.skipped),
            "</html>",
        ]
    )


def _hazard(hazard: Hazard, reports: dict[int, str]) -> str:
    first = hazard.results[0]
    verdict = first.verdict or {}
    lines = [f"<section><h2>Ranks diverge at <code>{quoted(hazard.place)}</code></h2>"]
    if first.effect:
        where = f" at <code>{quoted(str(first.effect.site))}</code>" if first.effect.site else ""
        lines.append(f"<p>Rank {first.trial.rank}: {quoted(first.effect.says)}{where}. {quoted(tell_fork(first))}</p>")
    lines.append(f"<p>{quoted(first.says)}</p>")
    for word, name in (("Probe", "probes"), ("Fix", "fixes")):
        for item in verdict.get(name, [])[:1]:
            patch = f"<pre>{quoted(item['patch'])}</pre>" if item.get("patch") else ""
            lines.append(f"<p><b>{word}:</b> {quoted(item['title'])}</p>{patch}")
    if first.verified:
        lines.append(
            f"<p>With this fix: <span class='{_class(first.verified.outcome)}'>{first.verified.outcome}</span></p>"
        )
    shown = [f"trial {r.trial.number} ({quoted(r.trial.kind)}, rank {r.trial.rank})" for r in hazard.results]
    lines.append(f"<p><small>Seen in {', '.join(shown)}</small>{_link(first, reports)}</p></section>")
    return "".join(lines)


def _table(results: Sequence[TrialResult], reports: dict[int, str]) -> Iterator[str]:
    """A row per perturbation, a column per rank."""
    ranks = sorted({result.trial.rank for result in results})
    rows: dict[tuple[str, str], dict[int, TrialResult]] = {}
    for result in results:
        trial = result.trial
        place = f"{trial.target.site or ''} {trial.target.label}".strip()
        rows.setdefault((trial.kind, place), {})[trial.rank] = result
    yield "<h2>What was tried</h2><div class=wide><table><tr><th>perturbation<th>of what"
    yield "".join(f"<th>rank {rank}" for rank in ranks)
    for (kind, place), by_rank in rows.items():
        yield f"<tr><td>{quoted(kind)}<td><small>{quoted(place)}</small>"
        yield "".join(f"<td>{_cell(by_rank.get(rank), reports)}" for rank in ranks)
    yield "</table></div>"


def _cell(result: TrialResult | None, reports: dict[int, str]) -> str:
    if result is None:
        return ""
    says = quoted(result.says, quote=True)
    text = f"<span class='{_class(result.outcome)}' title='{says}'>{result.outcome}</span> <small>{result.seconds:.0f} s</small>"
    return text + _link(result, reports)


def _link(result: TrialResult, reports: dict[int, str]) -> str:
    report = reports.get(result.trial.number)
    return f" <a href='{quoted(report, quote=True)}'>report</a>" if report else ""


def _class(outcome: TrialOutcome) -> str:
    return {TrialOutcome.PARTS: "parts", TrialOutcome.AGREES: "agrees", TrialOutcome.NOT_REACHED: "not"}[outcome]


def _skipped(skipped: Sequence[str]) -> Iterator[str]:
    if skipped:
        yield "<h2>What cannot happen here</h2><ul>"
        yield "".join(f"<li>{quoted(why)}" for why in skipped)
        yield "</ul>"


# ---------------------------------------------------------------------------------------------------------------------
# For each place where ranks diverge, the page of its incident, as `forkpoint diagnose --html` writes it.


def write_reports(told: Rehearsal, folder: Path) -> dict[int, str]:
    """Writes the pages. Returns trial -> name of its page, for the first trial of each place."""
    written: dict[int, str] = {}
    for hazard in find_hazards(told.results):
        first = hazard.results[0]
        if first.evidence:
            verdict = diagnose(read([first.evidence]), (str(Path.cwd()),), picture=True)
            name = f"trial_{first.trial.number}.html"
            (folder / name).write_text(render_html(verdict), encoding="utf-8", errors="backslashreplace")
            written[first.trial.number] = name
    return written
