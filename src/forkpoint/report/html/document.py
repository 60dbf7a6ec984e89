"""The verdict's JSON as the page holds it: that of `--json`, with rank lists as ranges and every string bounded.

A job of 10,000 ranks names most of them in every moment; as lists they would outweigh the whole page.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from forkpoint.model.verdict import Verdict
from forkpoint.report.html.bounds import MAX_LONG_TEXT, MAX_PATCH, MAX_TEXT, bounded
from forkpoint.report.html.ranges import as_ranges
from forkpoint.report.json_report import Json, verdict_document

_RANKS = frozenset({"ranks", "suspects"})
_LIMITS = {"patch": MAX_PATCH, "summary": MAX_LONG_TEXT, "condition": MAX_LONG_TEXT, "why": MAX_LONG_TEXT}
_MAX_ITEMS = {"evidence": 1000, "cohorts": 64, "sizes": 16, "dtypes": 16}
_MAX_OTHERS = 200
"""Of any other list. The timeline is no longer than that."""


def render_document(verdict: Verdict) -> str:
    """ASCII that can stand inside a script element: nothing in it can end that element or act on a terminal."""
    left_out: dict[str, Json] = {}
    embeds_source = verdict.picture is not None and verdict.picture.embeds_source
    whole = verdict_document(verdict if embeds_source else _without_patches(verdict))
    document = {name: _for_page(item, name, left_out) for name, item in whole.items()}
    patches = sum(remedy.patch is not None for remedy in (*verdict.probes, *verdict.fixes))
    if patches and not embeds_source:
        left_out["patch"] = patches
    text = json.dumps({**document, "left_out": left_out}, separators=(",", ":"))
    for character in "<>&\x7f":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _without_patches(verdict: Verdict) -> Verdict:
    """A patch holds lines of the user's source."""
    return replace(
        verdict,
        findings=tuple(
            replace(
                finding,
                probes=tuple(replace(probe, patch=None) for probe in finding.probes),
                fixes=tuple(replace(fix, patch=None) for fix in finding.fixes),
            )
            for finding in verdict.findings
        ),
    )


def _for_page(value: Json, key: str, left_out: dict[str, Json]) -> Json:
    """`left_out`: by the name of a list, how many of its items are not there."""
    if isinstance(value, str):
        return bounded(value, _LIMITS.get(key, MAX_TEXT))
    if isinstance(value, list | tuple) and key in _RANKS:
        return _ranks(value)
    if isinstance(value, list | tuple):
        limit = _MAX_ITEMS.get(key, _MAX_OTHERS)
        if len(value) > limit:
            left_out[key] = len(value) - limit
        return [_for_page(item, key, left_out) for item in value[:limit]]
    if isinstance(value, dict):
        return {name: _for_page(item, name, left_out) for name, item in value.items()}
    return value


def _ranks(ranks: Sequence[Json]) -> Json:
    found = as_ranges([rank for rank in ranks if isinstance(rank, int)])
    return {"count": found.count, "ranges": found.text}
