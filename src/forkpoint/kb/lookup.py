"""From what a person typed or pasted to the entries it is about."""

import re
from collections.abc import Iterator
from functools import cache

from forkpoint.kb.entry import Entry, EntryKind, LineMark
from forkpoint.kb.load import entries, marks

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
