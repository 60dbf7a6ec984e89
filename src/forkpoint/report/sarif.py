"""Verdict -> SARIF 2.1.0: the place in the source where ranks diverged, within the limits of GitHub code scanning."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from forkpoint import __version__
from forkpoint.knowledge.base import EntryKind, entries
from forkpoint.model.verdict import Cause, Site, Verdict
from forkpoint.report.escape import ascii_json, escape, valid_text

# ---------------------------------------------------------------------------------------------------------------------
# Common parts of all SARIF documents that forkpoint writes.
#
# GitHub code scanning accepts 1,000 locations in a result, of which it keeps 100; 255 characters in a rule's name, and 1,024
# in its descriptions.

MAX_RELATED = 100
MAX_NAME = 255
MAX_DESCRIPTION = 1024

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

Row = dict[str, Any]


def render_run(rules: Sequence[Row], results: Sequence[Row], notifications: Sequence[Row]) -> str:
    """One ASCII document with one run."""
    run = {
        "tool": {"driver": {"name": "forkpoint", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}],
        "results": results,
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return ascii_json(document, indent=1)


def place(file: str, region: Row | None = None, **more: Any) -> Row:
    """A location."""
    physical: Row = {"artifactLocation": {"uri": _uri(file)}}
    return {"physicalLocation": physical if region is None else {**physical, "region": region}, **more}


def notification(text: str) -> Row:
    return {"level": "warning", "message": {"text": text}}


def plain(text: str) -> str:
    """Escapes what SARIF would take for a link."""
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")


def _uri(file: str) -> str:
    """Relative to the current folder, which should be the repository; absolute for files outside it."""
    name = valid_text(file)
    path = Path(os.path.relpath(name or "unknown"))
    return Path(name).absolute().as_uri() if ".." in path.parts else quote(path.as_posix())


_MAX_TEXT = 2000
_MAX_PATH = 1000
_SHOWN_DIRECTLY = 0.85
"""From this confidence on, recorded facts show the cause; below, it is the best explanation of them."""


def render_sarif(verdict: Verdict) -> str:
    """One ASCII document with one result, or none without a site: GitHub rejects results without a location."""
    healthy = verdict.cause == Cause.HEALTHY
    results = [] if healthy or not verdict.sites else [_result(verdict)]
    missing = f"{_text(verdict.headline)} The place in the source is not known."
    notifications = [] if healthy or results else [notification(missing)]
    return render_run([_rule(verdict.cause)], results, notifications)


def _rule(cause: Cause) -> Row:
    entry = next(entry for entry in entries(EntryKind.CAUSE) if entry.code == cause)
    steps = "\n".join(f"- {step}" for step in entry.do)
    return {
        "id": cause,
        "name": cause.title().replace("-", ""),
        "shortDescription": {"text": entry.title[:MAX_DESCRIPTION]},
        "fullDescription": {"text": entry.means[:MAX_DESCRIPTION]},
        "help": {"text": f"{entry.means}\n\n{steps}", "markdown": f"{entry.means}\n\n{steps}"},
        "properties": {"tags": ["correctness", "distributed"]},
    }


def _result(verdict: Verdict) -> Row:
    first, *others = verdict.sites
    related = others[:MAX_RELATED]
    row: Row = {
        "ruleId": verdict.cause,
        "ruleIndex": 0,
        "level": _level(verdict),
        "message": {"text": _message(verdict, first, related)},
        "locations": [_place(first, logicalLocations=[{"fullyQualifiedName": _text(first.function)}])],
        "partialFingerprints": {"forkpointSite/v1": _fingerprint(verdict.cause, first)},
        "properties": {"confidence": verdict.confidence, "action": verdict.action},
    }
    if related:
        row["relatedLocations"] = [
            _place(site, id=number, message={"text": plain(_text(_decision(site)))})
            for number, site in enumerate(related, 1)
        ]
    return row


def _level(verdict: Verdict) -> str:
    if verdict.cause == Cause.INCONCLUSIVE:
        return "note"
    return "error" if verdict.confidence >= _SHOWN_DIRECTLY else "warning"


def _message(verdict: Verdict, first: Site, related: list[Site]) -> str:
    """Lists show only the first sentence. `[text](1)` links to a related location."""
    parts = [plain(_text(verdict.headline)), plain(_text(verdict.summary))]
    if first.condition is not None:
        parts.append(f"Decided by: {plain(_text(first.condition))}")
    if first.why is not None and first.why not in verdict.summary:
        parts.append(plain(_text(first.why)))
    parts += [f"[{plain(_text(_decision(site)))}]({number})" for number, site in enumerate(related, 1)]
    return "\n".join(parts)


def _decision(site: Site) -> str:
    return site.condition or site.function or "see"


def _place(site: Site, **more: object) -> Row:
    return place(site.file[-_MAX_PATH:], {"startLine": site.line} if site.line > 0 else None, **more)


def _fingerprint(cause: Cause, site: Site) -> str:
    """Identifies incidents with the same cause and place. Without the line number, which changes. The file itself is not
    read, since its name comes from the evidence; GitHub adds the hash of the line if it has the source.
    """
    parts = (cause, site.file.replace("\\", "/").rpartition("/")[2], site.function, site.condition or "")
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _text(text: str) -> str:
    return escape(text[:_MAX_TEXT])
