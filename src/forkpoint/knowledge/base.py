"""The knowledge base: its entries, how they are read from `entries/*.toml`, and how a query finds them.

A file has a table `[sources]` (key -> reference) and an array `[[entry]]`. An entry with a table `names` (number -> name)
stands for several numbers that share their text; `titles` then gives some of them a title of their own. `text` and `regex`
recognise a pasted line; `shows` and `unless` a whole log.

"""

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

# ---------------------------------------------------------------------------------------------------------------------
# What the knowledge base is made of.


class EntryKind(StrEnum):
    """One file of `entries/` each."""

    CAUSE = "cause"
    XID = "xid"
    SXID = "sxid"
    NCCL = "nccl"
    VARIABLE = "variable"
    LINE = "line"
    KNOWN = "known"
    """Problems that others met and solved: what their logs showed, and what it was there."""


NUMBERED = frozenset({EntryKind.XID, EntryKind.SXID})
"""Kinds whose codes are numbers: `79` is typed as `xid79` where it could mean something else."""


class Entry(Struct, frozen=True):
    kind: EntryKind
    code: str
    """What a person types: `79`, `ncclRemoteError`, `NCCL_TIMEOUT`, `divergent-path`."""
    title: str
    """One line, without a full stop."""
    means: str
    not_means: str
    """What it is often taken for and is not; empty where nobody errs."""
    do: tuple[str, ...]
    """Next steps, in order. Nothing here kills, resets or deletes on its own: who operates the node decides."""
    facts: tuple[tuple[str, str], ...]
    """Figures with their label: default, unit, likelier origin."""
    aliases: tuple[str, ...]
    """Other spellings that find this entry."""
    see: tuple[str, ...]
    """Related entries, as a person would type them."""
    sources: tuple[str, ...]

    @property
    def name(self) -> str:
        """The code as it stands in a sentence: `Xid 79`."""
        return {EntryKind.XID: f"Xid {self.code}", EntryKind.SXID: f"SXid {self.code}"}.get(self.kind, self.code)

    @property
    def query(self) -> str:
        """What to type to get here from anywhere."""
        return f"{self.kind}{self.code}" if self.kind in NUMBERED else self.code


class LineMark(Struct, frozen=True):
    """How a pasted line shows that an entry is meant: any of the texts, or any of the patterns."""

    entry: Entry
    texts: tuple[str, ...]
    patterns: tuple[str, ...]
    """Regular expressions whose repetitions are all bounded, so that no line can make them slow. A named group points
    to another entry: `(?P<xid>\\d{1,3})` to that Xid, `(?P<name>...)` to the entry of that name."""


class ClueField(StrEnum):
    """Where in a log a clue stands."""

    KIND = "kind"
    """What the line says, as a verdict's evidence names it: `watchdog-timeout`."""
    PATTERN = "pattern"
    """Which line it is: `ib-completion`."""
    OP = "op"
    SEQ = "seq"
    NUMEL = "numel"
    FRAME = "frame"
    """Part of `file function` in a stack."""


class Clue(Struct, frozen=True):
    """One line of a log that has all of these; of the words of a place, any."""

    words: tuple[tuple[ClueField, tuple[str, ...]], ...]


class KnownProblem(Struct, frozen=True):
    """A problem that others met. A log that shows every clue, and none of the others, looks like theirs: no proof."""

    entry: Entry
    shows: tuple[Clue, ...]
    unless: tuple[Clue, ...]


# ---------------------------------------------------------------------------------------------------------------------
# The only reader of `entries/`. One file per kind, read when that kind is asked for.
#
# A file has a table `[sources]` (key -> reference) and an array `[[entry]]`. An entry with a table `names` (number ->
# name) stands for several numbers that share their text; `titles` then gives some of them a title of their own. `text`
# and `regex` recognise a pasted line; `shows` and `unless` a whole log.

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
    import tomllib  # noqa: PLC0415 - a diagnosis asks for entries only where a machine reports a fault

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


# ---------------------------------------------------------------------------------------------------------------------
# From what a person typed or pasted to the entries it is about.

_NUMBER = re.compile(r"(?P<family>xid|sxid)?[\s:_#-]{0,3}(?P<number>\d{1,6})", re.IGNORECASE)
_NAMES = re.compile(
    r"\b(?:nccl[A-Z][A-Za-z]{3,30}|(?:TORCH|NCCL|CUDA|TORCHELASTIC)_[A-Z0-9_]{2,60}|IBV_WC_[A-Z_]{3,40})\b"
)
"""Names of entries that may stand anywhere in a pasted line."""

_MAX_CODE = 80
"""Longer than any code: what is longer was pasted."""
_MAX_SUGGESTIONS = 5


def find(query: str) -> tuple[Entry, ...]:
    """The entry that is meant, then others the query touches. Empty when nothing is known about it."""
    code = query.strip()
    if len(code) <= _MAX_CODE:
        number = _NUMBER.fullmatch(code)
        found = tuple(_by_number(number)) if number else _by_code(code)
        if found:
            return found
    return tuple(dict.fromkeys(_recognise(query)))


def suggest(query: str) -> tuple[str, ...]:
    """Codes spelled nearly like the query, the nearest first."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a misspelling pays for it

    spellings = {key: entry.query for kind in EntryKind for key, entry in _index(kind).items()}
    near = get_close_matches(_key(query.strip()[:_MAX_CODE]), spellings, n=4 * _MAX_SUGGESTIONS, cutoff=0.6)
    return tuple(dict.fromkeys(spellings[key] for key in near))[:_MAX_SUGGESTIONS]


def _by_number(match: re.Match[str]) -> Iterator[Entry]:
    """A bare number is first of all an Xid; it may also be a result of NCCL, a completion status, or an NVSwitch's."""
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
    """All kinds, that of the spelling first: most questions then read one file."""
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
    """Spelling -> entry. Where two entries claim one, the code of an entry outranks the alias of another."""
    known = entries(kind)
    index = {_key(alias): entry for entry in known for alias in entry.aliases}
    return index | {_key(entry.query): entry for entry in known}


def _key(code: str) -> str:
    return re.sub(r"[\s_-]+", "_", code.casefold())


def _recognise(line: str) -> Iterator[Entry]:
    """What a pasted line is, and the entries it names. What a line points to says more than that it points."""
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
