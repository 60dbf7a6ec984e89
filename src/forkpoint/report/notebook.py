"""Verdict -> HTML for notebooks: the headline, who did what, and where. No script, no style sheet, no link."""

from html import escape as escape_html

from forkpoint.model.verdict import Site, Verdict
from forkpoint.model.world import format_ranks, name_ranks
from forkpoint.report.describe import count_of, describe_cohort, describe_slot, suspects_first
from forkpoint.report.escape import escape

_MAX_COHORTS = 5
_MAX_SITES = 3
_MAX_RANGES = 8
_MAX_CHARS = 1200


def render_notebook(verdict: Verdict) -> str:
    suspect = f", suspect: {name_ranks(verdict.suspects, _MAX_RANGES)}" if verdict.suspects else ""
    sure = f"confidence {verdict.confidence:.2f}, " if verdict.confidence else ""  # 0 if nothing is claimed
    facts = f"{sure}action {verdict.action}{suspect}"
    parts = [
        f"<p><strong>{_text(verdict.headline)}</strong></p>",
        f"<p>{_text(verdict.cause)} ({_text(facts)})</p>",
        *_cohorts(verdict),
        *_sites(verdict.sites),
    ]
    return f"<div>{''.join(parts)}</div>"


def _cohorts(verdict: Verdict) -> list[str]:
    if verdict.divergence is None:
        return []
    cohorts = suspects_first(verdict)
    rows = [
        _row("td", format_ranks(cohort.ranks, _MAX_RANGES), cohort.role, describe_cohort(cohort))
        for cohort in cohorts[:_MAX_COHORTS]
    ]
    hidden = len(cohorts) - len(rows)
    rows += [_row("td", count_of(hidden, "more cohort"), "", "")] if hidden else []
    caption = f"<caption>{_text(describe_slot(verdict.divergence))}</caption>"
    return [f"<table>{caption}{_row('th', 'ranks', 'role', 'op')}{''.join(rows)}</table>"]


def _row(tag: str, *cells: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{_text(cell)}</{tag}>' for cell in cells)}</tr>"


def _sites(sites: tuple[Site, ...]) -> list[str]:
    shown = [f"<li><code>{_text(_describe_site(site))}</code></li>" for site in sites[:_MAX_SITES]]
    return [f"<ul>{''.join(shown)}</ul>"] if shown else []


def _describe_site(site: Site) -> str:
    place = f"{site.file[-200:]}:{site.line} {site.function[:200]}"
    return f"{place}: {site.condition}" if site.condition is not None else place


def _text(text: str) -> str:
    """All strings from input go through here."""
    return escape_html(escape(text[:_MAX_CHARS]))
