"""The only reader of `entries/`. One file per kind, read when that kind is asked for.

A file has a table `[sources]` (key -> reference) and an array `[[entry]]`. An entry with a table `names` (number ->
name) stands for several numbers that share their text; `titles` then gives some of them a title of their own. `text` and
`regex` recognise a pasted line; `shows` and `unless` a whole log.
"""

import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from forkpoint.kb.entry import NUMBERED, Clue, ClueField, Entry, EntryKind, KnownProblem, LineMark

Row = dict[str, Any]

_FOLDER = Path(__file__).parent / "entries"

FILES = {
    EntryKind.CAUSE: "causes.toml",
    EntryKind.XID: "xid.toml",
    EntryKind.SXID: "sxid.toml",
    EntryKind.NCCL: "nccl.toml",
    EntryKind.VARIABLE: "variables.toml",
    EntryKind.LINE: "lines.toml",
    EntryKind.KNOWN: "known.toml",
}

_KEYS = {
    *("code", "names", "titles", "title", "means", "not", "do", "facts", "aliases", "see", "sources"),
    *("text", "regex", "shows", "unless"),
}


@cache
def entries(kind: EntryKind) -> tuple[Entry, ...]:
    """Every entry of one kind, in the order of its file, or of the numbers."""
    return tuple(entry for entry, _ in _read(kind))


@cache
def marks(kind: EntryKind) -> tuple[LineMark, ...]:
    """How pasted lines show the entries of one kind, the most telling first."""
    return tuple(
        LineMark(entry, tuple(row.get("text", ())), tuple(row.get("regex", ())))
        for entry, row in _read(kind)
        if "text" in row or "regex" in row
    )


@cache
def known() -> tuple[KnownProblem, ...]:
    """Problems that others met, with what their logs showed."""
    return tuple(
        KnownProblem(entry, _clues(row["shows"]), _clues(row.get("unless", ())))
        for entry, row in _read(EntryKind.KNOWN)
    )


def _clues(rows: Iterable[dict[str, list[str]]]) -> tuple[Clue, ...]:
    return tuple(Clue(tuple((ClueField(place), tuple(words)) for place, words in row.items())) for row in rows)


@cache
def _read(kind: EntryKind) -> tuple[tuple[Entry, Row], ...]:
    document = tomllib.loads((_FOLDER / FILES[kind]).read_text(encoding="utf-8"))
    references: dict[str, str] = document["sources"]
    known = [(entry, row) for row in document["entry"] for entry in _expand(kind, row, references)]
    if kind in NUMBERED:
        known.sort(key=lambda pair: int(pair[0].code))
    return tuple(known)


def _expand(kind: EntryKind, row: Row, references: dict[str, str]) -> Iterator[Entry]:
    assert row.keys() <= _KEYS, f"unknown keys {row.keys() - _KEYS} in an entry of {FILES[kind]}"
    if "names" not in row:
        yield _entry(kind, row, references)
        return
    for code, name in row["names"].items():
        facts = {"driver's name": name, **row.get("facts", {})} if name else row.get("facts", {})
        title = row.get("titles", {}).get(code, row["title"])
        yield _entry(kind, {**row, "code": code, "title": title, "facts": facts}, references)


def _entry(kind: EntryKind, row: Row, references: dict[str, str]) -> Entry:
    return Entry(
        kind=kind,
        code=row["code"],
        title=row["title"],
        means=_paragraphs(row["means"]),
        not_means=_paragraphs(row.get("not", "")),
        do=tuple(_paragraphs(step) for step in row.get("do", ())),
        facts=tuple(row.get("facts", {}).items()),
        aliases=tuple(row.get("aliases", ())),
        see=tuple(row.get("see", ())),
        sources=_sources(row["sources"], references),
    )


def _sources(keys: list[str], references: dict[str, str]) -> tuple[str, ...]:
    """A source is a key of the file's table, or the reference itself where only one entry has it."""
    return tuple(references.get(key, key) for key in keys)


def _paragraphs(text: str) -> str:
    """Line ends inside a paragraph are only the file's; an empty line parts two."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
