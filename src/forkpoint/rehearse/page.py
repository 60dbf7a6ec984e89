"""A rehearsal as one self-contained page: what was tried on which rank, what happened, and each place where ranks diverge."""

from collections.abc import Iterator, Sequence
from html import escape as quoted
from pathlib import Path
from typing import Final

from forkpoint.evidence import read
from forkpoint.pipeline import diagnose
from forkpoint.rehearse.model import Rehearsal, TrialOutcome, TrialResult
from forkpoint.rehearse.render import Hazard, count_line, find_hazards, tell_fork
from forkpoint.report.page import render_html

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
