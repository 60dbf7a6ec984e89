"""JSON lines that anyone may have written: bounded, typed, and what does not fit is None."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from forkpoint.ingest.text import clean

MAX_RANKS: Final = 1 << 20
_MAX_LINE: Final = 1 << 20
_MAX_NUMBER: Final = 1 << 53
_WORDS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""JSON has no numbers for them."""


@dataclass(frozen=True, slots=True)
class JsonLine:
    number: int
    told: Mapping[str, object]
    """Empty where the line is not a JSON object."""


def read_lines(text: str) -> Iterator[JsonLine]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield JsonLine(number, _object(line))


def whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _MAX_NUMBER else None


def real(value: object) -> float | None:
    """Also NaN and infinity."""
    if isinstance(value, str):
        return _WORDS.get(value)
    if type(value) is float or (type(value) is int and abs(value) < _MAX_NUMBER):
        return float(value)
    return None


def reals(value: object, count: int) -> tuple[float, ...] | None:
    """None unless there are exactly `count` numbers."""
    found = [real(item) for item in items(value, count + 1)]
    return tuple(item for item in found if item is not None) if len(found) == count and None not in found else None


def wholes(value: object, limit: int) -> tuple[int, ...]:
    return tuple(number for item in items(value, limit) if (number := whole(item)) is not None)


def words(value: object) -> str:
    return clean(value) if isinstance(value, str) else ""


def items(value: object, limit: int) -> list[object]:
    return list(value[:limit]) if isinstance(value, list) else []


def pairs(value: object, limit: int) -> Mapping[str, object]:
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) and len(value) <= limit else {}


def world_size(told: Mapping[str, object]) -> int | None:
    size = whole(told.get("world"))
    return size if size and size <= MAX_RANKS else None


def _object(line: str) -> Mapping[str, object]:
    try:
        raw: object = json.loads(line) if len(line) <= _MAX_LINE else None
    except (ValueError, RecursionError):
        return {}
    return pairs(raw, _MAX_LINE)
