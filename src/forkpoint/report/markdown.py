"""Verdict -> Markdown for tickets and chat. Strings from input are neutralised: no markup, no mention, no link."""

import re
from collections.abc import Sequence

from forkpoint.model.verdict import Cause, Fix, Probe, Site, Verdict
from forkpoint.model.world import format_ranks, name_ranks
from forkpoint.report.describe import (
    cited,
    count_of,
    describe_cohort,
    describe_coverage,
    describe_slot,
    short_names,
    suspects_first,
)
from forkpoint.report.escape import escape
from forkpoint.report.snippet import render_snippet

# ---------------------------------------------------------------------------------------------------------------------
# Neutralises strings from input: no markup, no mention, no link, no escape from a block.
#
# Anything that may have a meaning goes into a code span, which both GitHub and Slack take literally. Backslashes are not
# enough: mentions, issue numbers and bare URLs are searched for after unescaping.

_PLAIN = re.compile(r"\(?(?:[A-Za-z]+(?:['-][A-Za-z]+)*|[0-9]+(?:[.,-][0-9]+)*)\)?")
"""A word or a number. `train.py` is neither: chat programs turn it into a link."""
_LISTED = re.compile(r"[0-9]+[.)]")
"""`1.` at the start of a line would start a list."""
_CODE = re.compile(r"`([^`]+)`")
_ENDS = ".,;:"
_FENCE = re.compile(r"`{3,}")


def sentence(text: str, limit: int) -> str:
    """One line, with everything but plain words and numbers as code. Text in backticks stays one code span."""
    shown = _cut(escape(text[:limit]), text, limit).strip()
    # Every second part was between backticks.
    *parts, last = _CODE.split(shown)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return "".join([part for prose, quoted in pairs for part in (_words(prose), code(quoted))] + [_words(last)])


def _words(prose: str) -> str:
    """Neighbouring words that need it share a code span."""
    shown: list[str] = []
    held: list[str] = []
    for place, word in enumerate(prose.split(" ")):
        body = word.rstrip(_ENDS)
        plain = not body or (_PLAIN.fullmatch(body) and not (place == 0 and _LISTED.fullmatch(word)))
        if not plain:
            held.append(body)
        if held and (plain or body != word):
            shown.append(code(" ".join(held)) + ("" if plain else word[len(body) :]))
            held = []
        if plain:
            shown.append(word)
    return " ".join([*shown, code(" ".join(held))] if held else shown)


def code(text: str, limit: int = 300) -> str:
    """A code span. Backticks become quotes: no notation for them works in both GitHub and Slack."""
    shown = _cut(escape(text[:limit]), text, limit).replace("`", "'").strip()
    return f"`{shown}`" if shown else "-"


def cell(text: str, limit: int = 120) -> str:
    """A code span in a table. A `|` would end the cell even if escaped, so it is replaced."""
    return code(text.replace("|", "¦"), limit)


def fenced(patch: str, kind: str = "diff") -> list[str]:
    """The lines of a fenced block. Tabs stay, so that a patch can be applied."""
    lines = ["\t".join(map(escape, line.split("\t"))) for line in patch.rstrip("\n").split("\n")]
    fence = "`" * max(3, 1 + max((len(run) for line in lines for run in _FENCE.findall(line)), default=0))
    return [f"{fence}{kind}", *lines, fence]


def _cut(shown: str, text: str, limit: int) -> str:
    return f"{shown} ..." if len(text) > limit else shown


MAX_LINES = 60
"""A ticket should fit on one page. Patches that do not fit are left to --json."""

_MAX_COHORTS = 5
_MAX_RANGES = 8
_MAX_SITES = 3
_MAX_HYPOTHESES = 3
_MAX_REMEDIES = 2
_MAX_EVIDENCE = 6
_MAX_NOTES = 4
_MAX_NEXT = 3
_SUMMARY = 1200
_SENTENCE = 400
_CODE_WIDTH = 100
_PATCH = 8000
"""Characters."""


_MAX_SEEN = 300


def render_seen(lines: Sequence[str]) -> str:
    """A paragraph below the report: earlier incidents at the same fork."""
    if not lines:
        return ""
    first, *rest = (sentence(line, _MAX_SEEN) for line in lines)
    return "\n".join(["", f"**Seen before**: {first}", "", *(f"- {line}" for line in rest), ""])


def render_markdown(verdict: Verdict, *, embed_source: bool = True) -> str:
    """At most MAX_LINES lines, ending in a newline. With `embed_source`, patches and lines of the source get the remaining
    room.
    """
    headline = sentence(verdict.headline, _SUMMARY) or "-"
    head = [f"# forkpoint: {verdict.cause}", "", f"**{headline}**", "", _facts(verdict)]
    if verdict.divergence is None and verdict.summary != verdict.headline:
        head += ["", sentence(verdict.summary, _SUMMARY)]  # a divergence is described below
    head += [*_cohorts(verdict), *_hypotheses(verdict), *_sites(verdict)]
    tail = [*_evidence(verdict), "", _coverage(verdict), *_next(verdict)]
    head += _snippet(verdict) if embed_source else []
    remedies = _remedies(verdict, MAX_LINES - len(head) - len(tail), embed_source=embed_source)
    return "\n".join([*head, *remedies, *tail]) + "\n"


def _snippet(verdict: Verdict) -> list[str]:
    """The fork in the source."""
    lines = [line.plain for line in render_snippet(verdict, _CODE_WIDTH)]
    return ["", *fenced("\n".join(lines), "text")] if lines else []


def _facts(verdict: Verdict) -> str:
    facts = [f"confidence {verdict.confidence:.2f}", f"action **{verdict.action}**"]
    if verdict.symptom is not None:
        facts.append(f"symptom {verdict.symptom}")
    if verdict.suspects:
        facts.append(f"suspect: **{name_ranks(verdict.suspects, _MAX_RANGES)}** of {verdict.coverage.ranks}")
    elif verdict.cause != Cause.HEALTHY:
        facts.append("no rank can be singled out")
    repair = next((h.repair for h in verdict.hypotheses[:1]), None) if verdict.cause != Cause.INCONCLUSIVE else None
    return ", ".join(facts) + (f"; replay: {sentence(repair, _SENTENCE)}" if repair else "")


def _cohorts(verdict: Verdict) -> list[str]:
    if verdict.divergence is None:
        return []
    suspects = frozenset(verdict.suspects)
    cohorts = suspects_first(verdict)
    rows = [
        f"| {format_ranks(cohort.ranks, _MAX_RANGES)}{'' if suspects.isdisjoint(cohort.ranks) else ' (suspect)'} "
        f"| {cohort.role} | {cell(describe_cohort(cohort))} |"
        for cohort in cohorts[:_MAX_COHORTS]
    ]
    hidden = len(cohorts) - len(rows)
    rows += [f"| {count_of(hidden, 'more cohort')} | | |"] if hidden else []
    where = sentence(describe_slot(verdict.divergence), _SENTENCE)
    return ["", f"**What**: {where}", "", "| ranks | role | op |", "|---|---|---|", *rows]


def _hypotheses(verdict: Verdict) -> list[str]:
    """For an undecided verdict: each explanation with what would decide it."""
    if verdict.cause != Cause.INCONCLUSIVE:
        return []
    rows = [
        f"- {h.likelihood}, {h.cause}: {sentence(h.says, _SENTENCE)}; decides: {code(h.decides)}"
        for h in verdict.hypotheses[:_MAX_HYPOTHESES]
    ]
    return ["", "**Maybe**", "", *rows] if rows else []


def _sites(verdict: Verdict) -> list[str]:
    shown = [_site(site, verdict.summary) for site in verdict.sites[:_MAX_SITES]]
    return ["", "**Where**", "", *shown] if shown else []


def _site(site: Site, summary: str) -> str:
    decided = f": {code(site.condition)}" if site.condition else ""
    why = f", {sentence(site.why, _SENTENCE)}" if site.why and site.why not in summary else ""
    return f"- {code(f'{site.file[-200:]}:{site.line}')} in {code(site.function)}{decided}{why}"


def _remedies(verdict: Verdict, room: int, *, embed_source: bool) -> list[str]:
    """What to do, each with its patch if it fits."""
    if verdict.cause == Cause.HEALTHY:
        return []
    offered: list[tuple[str, Fix | Probe]] = [("Fix", fix) for fix in verdict.fixes[:_MAX_REMEDIES]]
    offered += [("Probe", probe) for probe in verdict.probes[:1]]
    room -= 2 * len(offered)
    lines: list[str] = []
    for label, remedy in offered:
        patch = ["", *fenced(remedy.patch)] if remedy.patch else []
        fits = embed_source and len(patch) <= room and sum(map(len, patch)) <= _PATCH
        left_out = "" if fits or not patch else f" (its patch has {len(patch) - 3} lines: --json)"
        shown = patch if fits else []
        room -= len(shown)
        lines += ["", f"{_title(label, remedy)}{left_out}", *shown]
    return lines


def _title(label: str, remedy: Fix | Probe) -> str:
    where = f" at {code(remedy.where)}" if isinstance(remedy, Probe) and remedy.where else ""
    return f"**{label}**{where}: {sentence(remedy.title, _SENTENCE)}"


def _evidence(verdict: Verdict) -> list[str]:
    names = short_names(verdict)
    rows = [
        f"- {number}{'' if item.rank is None else f' rank {item.rank}'}, {code(names[item.file])} "
        f"{sentence(item.where, 80)}: {sentence(item.says, _SENTENCE)}"
        for number, item in cited(verdict)
    ]
    hidden = len(rows) - _MAX_EVIDENCE
    rows = [*rows[:_MAX_EVIDENCE], f"- {hidden} more: --json"] if hidden > 0 else rows
    return ["", "**Evidence**", "", *rows] if rows else []


def _coverage(verdict: Verdict) -> str:
    coverage, names = verdict.coverage, short_names(verdict)
    counts = describe_coverage(coverage)
    notes = [sentence(note, _SENTENCE) for note in coverage.notes[:_MAX_NOTES]]
    hidden = len(coverage.notes) - len(notes)
    aside = [f"set aside {code(names[one.file])}: {sentence(one.why, _SENTENCE)}" for one in coverage.set_aside]
    hidden += max(0, len(aside) - _MAX_NOTES)
    more = [f"{hidden} more notes: --json"] if hidden else []
    return "; ".join([f"**Coverage**: {counts}", *aside[:_MAX_NOTES], *notes, *more])


def _next(verdict: Verdict) -> list[str]:
    rows = [f"- {code(step)}" for step in verdict.next[:_MAX_NEXT]]
    return ["", "**Next**", "", *rows] if rows else []
