"""Entries of the knowledge base -> text and JSON (schema `forkpoint.explain/1`, see `explain.schema.json`)."""

import textwrap
from collections.abc import Sequence
from typing import Any

from forkpoint.knowledge.base import Entry
from forkpoint.report.escape import ascii_json

SCHEMA = "forkpoint.explain/1"
_INDENT = "  "
_MAX_COLUMN = 32
"""Few names are longer; their titles are not aligned."""


def render_entries_text(entries: Sequence[Entry], width: int) -> str:
    """The first entry in full, the others by name."""
    entry, *others = entries
    parts = [_heading(entry, width), *_sections(entry, width)]
    if others:
        parts.append("Also here\n" + "\n".join(_pointer(other, width) for other in others))
    return "\n\n".join(parts)


def render_list(entries: Sequence[Entry]) -> str:
    """One line per entry: what to type, and its title."""
    column = min(max(len(entry.query) for entry in entries), _MAX_COLUMN)
    return "\n".join(f"{entry.query:<{column}}  {entry.title}" for entry in entries)


def _heading(entry: Entry, width: int) -> str:
    lines = [textwrap.fill(f"{entry.name}: {entry.title}", width, subsequent_indent=_INDENT)]
    column = max((len(label) for label, _ in entry.facts), default=0) + 2
    for label, value in entry.facts:
        hanging = _INDENT + " " * column
        lines.append(_fill(f"{label:<{column}}{value}", width, _INDENT, hanging))
    return "\n".join(lines)


def _sections(entry: Entry, width: int) -> list[str]:
    sections = [f"What it means\n{_paragraphs(entry.means, width)}"]
    if entry.not_means:
        sections.append(f"What it does not mean\n{_paragraphs(entry.not_means, width)}")
    if entry.do:
        sections.append("What to do\n" + "\n".join(_items(entry.do, width)))
    if entry.see:
        sections.append(_fill("See also: " + ", ".join(entry.see), width, "", _INDENT))
    sections.append("Source\n" + "\n".join(_items(entry.sources, width)))
    return sections


def _paragraphs(text: str, width: int) -> str:
    return "\n".join(_fill(paragraph, width, _INDENT, _INDENT) for paragraph in text.split("\n\n"))


def _items(items: Sequence[str], width: int) -> list[str]:
    return [_fill(item, width, f"{_INDENT}- ", f"{_INDENT}  ") for item in items]


def _pointer(entry: Entry, width: int) -> str:
    return _fill(f"{entry.title} (forkpoint explain {entry.query})", width, f"{_INDENT}- ", f"{_INDENT}  ")


def _fill(text: str, width: int, first: str, rest: str) -> str:
    """Wraps without breaking words: readers copy paths and commands."""
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def render_entries_json(query: str | None, entries: Sequence[Entry]) -> str:
    """`query`: the user's query, null for a list. The first entry is the best match."""
    return ascii_json({"schema": SCHEMA, "query": query, "entries": [_document(entry) for entry in entries]}, indent=2)


def _document(entry: Entry) -> dict[str, Any]:
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
