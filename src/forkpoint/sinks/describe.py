"""Verdict -> `Notice`. Secrets are masked here, once for all services: what is sent leaves the machine."""

import json
import time
from collections.abc import Sequence
from hashlib import sha256

from forkpoint.history.incident import find_fingerprint
from forkpoint.judge.facts.cite import LIKELY
from forkpoint.model.capture import Capture
from forkpoint.model.verdict import Cause, Hypothesis, Site, Verdict
from forkpoint.model.world import name_ranks
from forkpoint.redact import mask_secrets
from forkpoint.report.escape import ascii_json, escape, map_texts
from forkpoint.report.json_report import verdict_document
from forkpoint.report.markdown import render_markdown, render_seen
from forkpoint.sinks.notice import Notice, NoticeOrigin

_MAX_SITES = 3
_MAX_READINGS = 3
_MAX_NEXT = 1
_MAX_RANGES = 8
_TEXT = 600
"""Characters of one line: services truncate long messages, and not where we would."""


def describe_notice(
    verdict: Verdict,
    capture: Capture | None,
    origin: NoticeOrigin,
    seen: Sequence[str] = (),
    *,
    embed_source: bool = False,
) -> Notice:
    """`embed_source`: the report for tickets contains source lines and patches."""
    decided = verdict.cause not in (Cause.INCONCLUSIVE, Cause.HEALTHY)
    suspects = verdict.suspects if decided else ()
    ranks = f"{name_ranks(suspects, _MAX_RANGES)} of {verdict.coverage.ranks}" if suspects else ""
    document = verdict_document(verdict)
    if seen:
        document["seen_before"] = [*seen]
    return Notice(
        cause=verdict.cause,
        action=verdict.action,
        confidence=verdict.confidence,
        is_likely=decided and verdict.confidence >= LIKELY,
        suspects=suspects,
        ranks=ranks,
        headline=_safe_text(verdict.headline or verdict.summary or verdict.cause),
        summary=_safe_text(verdict.summary),
        at=max((m.utc for m in verdict.moments if m.utc), default=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())),
        fork=_fork(verdict, capture, origin.job),
        origin=origin,
        sites=tuple(map(_site, verdict.sites[:_MAX_SITES])),
        fix=_safe_text(verdict.fixes[0].title) if verdict.fixes else None,
        readings=() if decided else tuple(map(_reading, verdict.hypotheses[:_MAX_READINGS])),
        next=tuple(map(_safe_text, verdict.next[:_MAX_NEXT])),
        seen=tuple(map(_safe_text, seen)),
        document=ascii_json(map_texts(document, mask_secrets), indent=2),
        markdown=mask_secrets(render_markdown(verdict, embed_source=embed_source) + render_seen(seen)),
    )


def _safe_text(text: str) -> str:
    shown = escape(mask_secrets(text))
    return shown if len(shown) <= _TEXT else f"{shown[:_TEXT]} ..."


def _site(site: Site) -> str:
    return _safe_text(f"{site.file}:{site.line}" + (f", {site.why}" if site.why else ""))


def _reading(reading: Hypothesis) -> str:
    return _safe_text(f"{reading.likelihood}, {reading.cause}: {reading.says} Decides: {reading.decides}")


def _fork(verdict: Verdict, capture: Capture | None, job: str | None) -> str:
    """The fingerprint, as in the history. Without one, a key of this incident alone, so that nothing is merged wrongly."""
    found = find_fingerprint(verdict, capture, job) if capture is not None else None
    if found is not None:
        return found.key
    told = [verdict.cause, verdict.headline, verdict.suspects, job]
    return sha256(json.dumps(told).encode("utf-8", "backslashreplace")).hexdigest()[:16]
