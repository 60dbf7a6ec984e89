"""What the linter's measurements say: tables, a listing of one bug, a sample to judge, and JSON."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from bench.lint_score import NEAR, Outcome, Score, is_at_fault
from bench.lint_tool import Cost, Run, Violation

_SCOPES = ("intra", "inter", "data", "no")
_TERMS = f"""\
A hit is a finding in the bug's file within {NEAR} lines of what the fix changes. Gone: the fixed revision has none of the
hits any more; partly gone: it lacks at least one. Related: a line to which a finding points counts too."""
_CONTEXT = 8
_SLOWEST = 5


@dataclass(frozen=True, slots=True)
class Linted:
    """One run over one exported tree."""

    name: str
    tree: Path
    run: Run


@dataclass(frozen=True, slots=True)
class Speed:
    lines: int
    cold: Run
    cached: Run


def render_outcomes(outcomes: Sequence[Outcome], not_run: Sequence[str]) -> str:
    parts = [
        _TERMS,
        "Default rules:\n\n" + _table_of_scopes(outcomes, _default),
        "With `--advisory`:\n\n" + _table_of_scopes(outcomes, _advisory),
    ]
    if not_run:
        parts.append("Not run:\n\n" + "\n".join(f"- {line}" for line in not_run))
    if failed := [outcome for outcome in outcomes if outcome.failure]:
        parts.append("Failed:\n\n" + "\n".join(f"- {each.bug.id}: {each.failure}" for each in failed))
    missed = [outcome for outcome in outcomes if not outcome.default.is_hit]
    parts.append("Missed by the default rules:\n\n" + _bullets(_miss, missed))
    unmoved = [outcome for outcome in outcomes if outcome.default.kept]
    parts.append("Hit, and not gone in the fix:\n\n" + _bullets(_kept, unmoved))
    return "\n\n".join(parts)


def render_density(linted: Sequence[Linted], outcomes: Sequence[Outcome], lines_of_files: int) -> str:
    """Over whole trees, and over the files with a bug alone, which are full of collectives."""
    read = [each.run for each in linted if each.run.failure is None]
    in_trees = [violation for run in read for violation in run.violations]
    in_files = [
        violation for each in outcomes for violation in each.buggy.violations if violation.file == each.bug.file
    ]
    rows = ["| findings per 1,000 lines | lines | default | with `--advisory` |", "|---|---|---|---|"]
    for name, lines, found in (
        (f"{len(read)} trees", sum(run.lines for run in read), in_trees),
        (f"the {len(outcomes)} buggy files alone", lines_of_files, in_files),
    ):
        default = sum(not violation.advisory for violation in found)
        rows.append(f"| {name} | {lines:,} | {_per(default, lines, 1000)} | {_per(len(found), lines, 1000)} |")
    return "\n".join(rows)


def render_costs(linted: Sequence[Linted]) -> str:
    slowest = sorted(linted, key=lambda each: each.run.cost.cpu_s, reverse=True)[:_SLOWEST]
    total = sum(each.run.cost.cpu_s for each in linted)
    rows = [f"| {each.name} | {each.run.lines:,} | {_cost(each.run.cost)} |" for each in slowest]
    peak = max((each.run.cost.peak_mb for each in linted), default=0)
    return "\n".join(
        [
            f"{len(linted)} runs, {total:.0f} CPU seconds, largest peak {peak:,.0f} MB. The slowest:",
            "",
            "| tree | lines | CPU | time | peak |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


def render_kept_repositories(linted: Sequence[Linted]) -> str:
    rows = [
        "| repository | lines | findings | per 3,000 lines | CPU | time | peak |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, runs in [*((each.name, [each.run]) for each in linted), ("all", [each.run for each in linted])]:
        lines = sum(run.lines for run in runs)
        found = sum(len(run.violations) for run in runs)
        cost = Cost(
            sum(run.cost.cpu_s for run in runs),
            sum(run.cost.wall_s for run in runs),
            max((run.cost.peak_mb for run in runs), default=0),
        )
        failed = next((f" ({run.failure})" for run in runs if run.failure), "")
        rows.append(f"| {name}{failed} | {lines:,} | {found} | {_per(found, lines, 3000)} | {_cost(cost)} |")
    return "\n".join(rows) + "\n\n" + _by_rule(violation for each in linted for violation in each.run.violations)


def render_speed(speed: Speed) -> str:
    rows = [
        f"{speed.lines:,} lines on one core, default rules:",
        "",
        "| run | CPU | time | peak | CPU per 100,000 lines |",
        "|---|---|---|---|---|",
    ]
    for name, run in (("cold", speed.cold), ("second, cached", speed.cached)):
        failed = f" ({run.failure})" if run.failure else ""
        rows.append(f"| {name}{failed} | {_cost(run.cost)} | {run.cost.cpu_s * 100_000 / speed.lines:.2f} s |")
    return "\n".join(rows)


def render_listing(outcome: Outcome) -> str:
    """Everything found in the bug's file, before and after the fix, for who works on a rule."""
    bug = outcome.bug
    lines = [f"## {bug.id} ({bug.scope})", bug.root_cause, f"{bug.file}, {bug.function}, lines {list(bug.hunks)}"]
    for name, run in (("buggy", outcome.buggy), ("fixed", outcome.fixed)):
        here = [v for v in run.violations if v.file == bug.file]
        state = run.failure or f"{len(here)} in this file, {len(run.violations)} in {run.lines:,} lines"
        lines.append(f"{name} revision: {state}, {run.notes} notes, {run.cost.cpu_s:.1f} s CPU")
        for violation in sorted(here, key=lambda each: each.line):
            near = name == "buggy" and is_at_fault(bug, bug.file, violation.line)
            lines.append(f"  {'HIT ' if near else '    '}{_in_a_line(violation)}")
            lines += [f"           {at.file}:{at.line} {at.says}" for at in violation.related]
    lines += [f"  RELATED {violation.file} {_in_a_line(violation)}" for violation in outcome.advisory.related]
    for name, each in (("default", outcome.default), ("advisory", outcome.advisory)):
        lines.append(f"{name}: {_verdict(each)}")
    return "\n".join(lines)


def render_sample(linted: Sequence[Linted], count: int, seed: int) -> str:
    """Findings for a person to judge, with the source around them."""
    found = [(each, violation) for each in linted for violation in each.run.violations]
    found.sort(key=lambda pair: (pair[0].name, pair[1].file, pair[1].line, pair[1].rule, pair[1].message))
    chosen = random.Random(seed).sample(found, min(count, len(found)))
    parts = [f"# {len(chosen)} of {len(found)} findings (seed {seed})\n\nJudge each: real hazard, or false."]
    for number, (each, violation) in enumerate(chosen, 1):
        about = [
            f"## {number}. {violation.rule}: {each.name} {violation.file}:{violation.line} in {violation.function}",
            violation.message,
            f"Condition: `{violation.condition}`. Why it can differ: {violation.why}",
            *(f"- {at.file}:{at.line} {at.says}" for at in violation.related),
            "```python\n" + _source_around(each.tree / violation.file, violation.line) + "\n```",
            "Judgement:",
        ]
        parts.append("\n\n".join(about))
    return "\n\n".join(parts) + "\n"


def as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "id": outcome.bug.id,
        "static_scope": outcome.bug.scope,
        "failure": outcome.failure,
        "cost": {"buggy": asdict(outcome.buggy.cost), "fixed": asdict(outcome.fixed.cost)},
        **{
            name: {
                "hit": each.is_hit,
                "gone": each.is_gone,
                "partly_gone": each.is_partly_gone,
                "hit_or_related": each.is_hit_or_related,
                "hits": [asdict(violation) for violation in each.hits],
                "kept": [asdict(violation) for violation in each.kept],
            }
            for name, each in (("default", outcome.default), ("advisory", outcome.advisory))
        },
    }


def _default(outcome: Outcome) -> Score:
    return outcome.default


def _advisory(outcome: Outcome) -> Score:
    return outcome.advisory


def _table_of_scopes(outcomes: Sequence[Outcome], rules: Callable[[Outcome], Score]) -> str:
    rows = [
        "| scope | bugs | hit | gone | partly gone | hit or related |",
        "|---|---|---|---|---|---|",
    ]
    for name, scopes in [*((scope, (scope,)) for scope in _SCOPES), ("all", _SCOPES)]:
        scores = [rules(outcome) for outcome in outcomes if outcome.bug.scope in scopes]
        if not scores:
            continue
        hits = sum(each.is_hit for each in scores)
        rows.append(
            f"| {name} | {len(scores)} | {_share(hits, len(scores))} "
            f"| {_share(sum(each.is_gone for each in scores), hits)} "
            f"| {_share(sum(each.is_partly_gone for each in scores), hits)} "
            f"| {_share(sum(each.is_hit_or_related for each in scores), len(scores))} |"
        )
    return "\n".join(rows)


def _bullets(say: Callable[[Outcome], str], outcomes: Sequence[Outcome]) -> str:
    return "\n".join(say(outcome) for outcome in sorted(outcomes, key=_order)) or "none"


def _miss(outcome: Outcome) -> str:
    found = [
        name for name, holds in (("related", outcome.default.related), ("advisory", outcome.advisory.hits)) if holds
    ]
    also = f" [{', '.join(found)}]" if found else ""
    return f"- {outcome.bug.id} ({outcome.bug.scope}){also}: {shorten(outcome.bug.root_cause, 130, placeholder=' ...')}"


def _kept(outcome: Outcome) -> str:
    kept = outcome.default.kept
    return (
        f"- {outcome.bug.id} ({outcome.bug.scope}): {len(kept)} of {len(outcome.default.hits)}, {_in_a_line(kept[0])}"
    )


def _order(outcome: Outcome) -> tuple[int, str]:
    return _SCOPES.index(outcome.bug.scope), outcome.bug.id


def _verdict(score: Score) -> str:
    if not score.is_hit:
        return "related only" if score.related else "missed"
    return f"{len(score.hits)} hits, {len(score.kept)} of them still in the fixed revision"


def _in_a_line(violation: Violation) -> str:
    mark = " (advisory)" if violation.advisory else ""
    condition = f" [{violation.condition}]" if violation.condition else ""
    why = f" because {violation.why}" if violation.why else ""
    return f"{violation.line} {violation.rule}{mark} in {violation.function}: {violation.message}{condition}{why}"


def _by_rule(violations: Iterable[Violation]) -> str:
    counts = Counter(violation.rule for violation in violations)
    return "\n".join(["| rule | findings |", "|---|---|", *(f"| {rule} | {n} |" for rule, n in counts.most_common())])


def _source_around(file: Path, line: int) -> str:
    lines = file.read_text(errors="replace").splitlines()
    first = max(line - _CONTEXT, 1)
    return "\n".join(
        f"{number:5d} {'>' if number == line else ' '} {text}"
        for number, text in enumerate(lines[first - 1 : line + _CONTEXT], first)
    )


def _cost(cost: Cost) -> str:
    return f"{cost.cpu_s:.2f} s | {cost.wall_s:.2f} s | {cost.peak_mb:,.0f} MB"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "0 of 0"


def _per(count: int, lines: int, unit: int) -> str:
    return f"{count * unit / lines:.2f}" if lines else "-"
