"""Entries of the knowledge base -> JSON, schema `forkpoint.explain/1` (`explain.schema.json` beside this file)."""

import json
from collections.abc import Sequence
from typing import Any

from forkpoint.kb.entry import Entry

SCHEMA = "forkpoint.explain/1"


def render_entries(query: str | None, entries: Sequence[Entry]) -> str:
    """One ASCII document. `query` is what was asked, null for a list; the first entry is the one that is meant."""
    document = {"schema": SCHEMA, "query": query, "entries": [_entry(entry) for entry in entries]}
    return json.dumps(document, indent=2).replace("\x7f", "\\u007f")


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "code": entry.code,
        "title": entry.title,
        "means": entry.means,
        "does_not_mean": entry.not_means or None,
        "do": list(entry.do),
        "facts": dict(entry.facts),
        "aliases": list(entry.aliases),
        "see": list(entry.see),
        "sources": list(entry.sources),
    }
