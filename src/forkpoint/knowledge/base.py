"""The knowledge base: its entries, how they are read from `entries/*.toml`, and how a query finds them."""

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

# ---------------------------------------------------------------------------------------------------------------------
# The types of the knowledge base.


class EntryKind(StrEnum):
    """One file of `entries/` each."""

    CAUSE = "cause"
    XID = "xid"
    SXID = "sxid"
    NCCL = "nccl"
    VARIABLE = "variable"
    LINE = "line"
    KNOWN = "known"
    """Problems that others reported and solved: what their logs showed, and the cause."""


NUMBERED = frozenset({EntryKind.XID, EntryKind.SXID})
"""Kinds whose codes are numbers: one types `xid79` if `79` alone is ambiguous."""


class Entry(Struct, frozen=True):
    kind: EntryKind
    code: str
    """What a person types: `79`, `ncclRemoteError`, `NCCL_TIMEOUT`, `divergent-path`."""
    title: str
    """One line, without a full stop."""
    means: str
    not_means: str
    """A common misunderstanding; empty if there is none."""
    do: tuple[str, ...]
    """Next steps, in order. None of them kills, resets or deletes anything: the operator of the node decides."""
    facts: tuple[tuple[str, str], ...]
    """(label, value): default, unit, likelier origin."""
    aliases: tuple[str, ...]
    """Other spellings that find this entry."""
    see: tuple[str, ...]
    """Related entries, as a person would type them."""
    sources: tuple[str, ...]

    @property
    def name(self) -> str:
        """The code as written in a sentence: `Xid 79`."""
        return {EntryKind.XID: f"Xid {self.code}", EntryKind.SXID: f"SXid {self.code}"}.get(self.kind, self.code)

    @property
    def query(self) -> str:
        """The unambiguous query for this entry."""
        return f"{self.kind}{self.code}" if self.kind in NUMBERED else self.code


class LineMark(Struct, frozen=True):
    """How a pasted line is recognised: by any of the texts, or any of the patterns."""

    entry: Entry
    texts: tuple[str, ...]
    patterns: tuple[str, ...]
    """Regular expressions whose repetitions are all bounded, so that no line can make them slow. A named group points
    to another entry: `(?P<xid>\\d{1,3})` to that Xid, `(?P<name>...)` to the entry of that name."""


class ClueField(StrEnum):
    """Which part of a log event a clue is about."""

    KIND = "kind"
    """The kind of event: `watchdog-timeout`."""
    PATTERN = "pattern"
    """The name of the log pattern: `ib-completion`."""
    OP = "op"
    SEQ = "seq"
    NUMEL = "numel"
    FRAME = "frame"
    """A substring of `file function` in a stack."""


class Clue(Struct, frozen=True):
    """One log event that matches all fields; for each field, any of the words."""

    words: tuple[tuple[ClueField, tuple[str, ...]], ...]


class KnownProblem(Struct, frozen=True):
    """A problem that others reported. A log with every clue in `shows` and none in `unless` looks like theirs. Not a proof."""

    entry: Entry
    shows: tuple[Clue, ...]
    unless: tuple[Clue, ...]


# ---------------------------------------------------------------------------------------------------------------------
# Reads `entries/`: one file per kind, on demand.
#
# A file has a table `[sources]` (key -> reference) and an array `[[entry]]`. An entry with a table `names` (number ->
# name) describes several numbers with the same text; `titles` then gives some of them their own title. `text` and `regex`
# recognise a pasted line; `shows` and `unless` a whole log.

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
    """All entries of one kind, in the order of the file, or sorted by number."""
    return tuple(entry for entry, _ in _read(kind))


@cache
def marks(kind: EntryKind) -> tuple[LineMark, ...]:
    """How pasted lines are recognised as entries of one kind, in the order of the file."""
    return tuple(
        LineMark(entry, tuple(row.get("text", ())), tuple(row.get("regex", ())))
        for entry, row in _read(kind)
        if "text" in row or "regex" in row
    )


@cache
def known() -> tuple[KnownProblem, ...]:
    """Problems that others reported, with what their logs showed."""
    return tuple(
        KnownProblem(entry, _clues(row["shows"]), _clues(row.get("unless", ())))
        for entry, row in _read(EntryKind.KNOWN)
    )


def _clues(rows: Iterable[dict[str, list[str]]]) -> tuple[Clue, ...]:
    return tuple(Clue(tuple((ClueField(place), tuple(words)) for place, words in row.items())) for row in rows)


@cache
def _read(kind: EntryKind) -> tuple[tuple[Entry, Row], ...]:
    import tomllib  # noqa: PLC0415 - a diagnosis needs entries only if a machine reports a fault

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
    """A source is a key of the file's table, or the reference itself if only one entry uses it."""
    return tuple(references.get(key, key) for key in keys)


def _paragraphs(text: str) -> str:
    """Joins the lines of each paragraph; an empty line separates paragraphs."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


# ---------------------------------------------------------------------------------------------------------------------
# From what a person typed or pasted to the matching entries.

_NUMBER = re.compile(r"(?P<family>xid|sxid)?[\s:_#-]{0,3}(?P<number>\d{1,6})", re.IGNORECASE)
_NAMES = re.compile(
    r"\b(?:nccl[A-Z][A-Za-z]{3,30}|(?:TORCH|NCCL|CUDA|TORCHELASTIC)_[A-Z0-9_]{2,60}|IBV_WC_[A-Z_]{3,40})\b"
)
"""Names of entries that may occur anywhere in a pasted line."""

_WORDS = re.compile(r"[a-z0-9_]{2,40}")
_MAX_CODE = 80
"""Codes are shorter than this: longer text was pasted."""
_MAX_SUGGESTIONS = 5


def find(query: str) -> tuple[Entry, ...]:
    """The best match, then related entries. Empty if nothing matches."""
    code = query.strip()
    if len(code) <= _MAX_CODE:
        number = _NUMBER.fullmatch(code)
        found = tuple(_by_number(number)) if number else _by_code(code)
        if found:
            return found
    return tuple(dict.fromkeys(_recognise(query)))


def suggest(query: str) -> tuple[str, ...]:
    """Codes with a similar spelling, the closest first."""
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for a misspelling

    spellings = {key: entry.query for kind in EntryKind for key, entry in _index(kind).items()}
    near = get_close_matches(_key(query.strip()[:_MAX_CODE]), spellings, n=4 * _MAX_SUGGESTIONS, cutoff=0.6)
    return tuple(dict.fromkeys(spellings[key] for key in near))[:_MAX_SUGGESTIONS]


def suggest_by_words(query: str) -> tuple[str, ...]:
    """Codes whose title has all words of the query."""
    wanted = set(_WORDS.findall(query.casefold()))
    titles = ((entry, set(_WORDS.findall(entry.title.casefold()))) for kind in EntryKind for entry in entries(kind))
    return tuple(entry.query for entry, words in titles if wanted and wanted <= words)[:_MAX_SUGGESTIONS]


def _by_number(match: re.Match[str]) -> Iterator[Entry]:
    """A bare number is an Xid first; it may also be an NCCL result or an InfiniBand completion status, else an SXid."""
    number = str(int(match["number"]))
    if match["family"]:
        yield from _by_code(match["family"] + number)
        return
    spellings = ((EntryKind.XID, "xid"), (EntryKind.NCCL, "nccl"), (EntryKind.NCCL, "ib"))
    found = [entry for kind, family in spellings if (entry := _index(kind).get(family + number))]
    yield from found or _by_code(f"sxid{number}")


def _by_code(code: str) -> tuple[Entry, ...]:
    key = _key(code)
    return next(((found,) for kind in _likely_kinds(code) if (found := _index(kind).get(key))), ())


def _likely_kinds(code: str) -> tuple[EntryKind, ...]:
    """All kinds, the one that the spelling suggests first: most queries then read only one file."""
    low = code.casefold()
    if low.startswith(("xid", "sxid")):
        first = (EntryKind.SXID,) if low.startswith("s") else (EntryKind.XID,)
    elif low.startswith("ib") or (low.startswith("nccl") and "_" not in code):
        first = (EntryKind.NCCL, EntryKind.VARIABLE)
    elif code.isupper():
        first = (EntryKind.VARIABLE, EntryKind.NCCL)
    else:
        first = (EntryKind.CAUSE, EntryKind.LINE)
    return tuple(dict.fromkeys((*first, *EntryKind)))


@cache
def _index(kind: EntryKind) -> dict[str, Entry]:
    """Spelling -> entry. If two entries share a spelling, a code takes precedence over an alias."""
    known = entries(kind)
    index = {_key(alias): entry for entry in known for alias in entry.aliases}
    return index | {_key(entry.query): entry for entry in known}


def _key(code: str) -> str:
    return re.sub(r"[\s_-]+", "_", code.casefold())


def _recognise(line: str) -> Iterator[Entry]:
    """The entries of a pasted line, each after the entries that it points to, which say more; then entries it names."""
    seen = [(mark.entry, tuple(_pointed_to(mark, line))) for mark in _all_marks() if _shows(mark, line)]
    for entry, targets in seen:
        yield from targets
        yield entry
    for name in _NAMES.findall(line):
        yield from _by_code(name)


def _all_marks() -> tuple[LineMark, ...]:
    return (*marks(EntryKind.LINE), *marks(EntryKind.NCCL))


def _shows(mark: LineMark, line: str) -> bool:
    return any(text in line for text in mark.texts) or any(re.search(pattern, line) for pattern in mark.patterns)


def _pointed_to(mark: LineMark, line: str) -> Iterator[Entry]:
    for pattern in mark.patterns:
        for match in re.finditer(pattern, line):
            for group, value in match.groupdict().items():
                if value:
                    yield from _by_code(value if group == "name" else f"{group}{value}")
