"""A brief's parts, and how they share a limited number of characters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

LIMIT: Final = 12_000
"""Characters of a brief, unless another number is asked for."""
_TAIL = 110
"""Characters reserved to say what a part leaves out."""


@dataclass(frozen=True, slots=True)
class BriefPart:
    name: str
    title: str
    lines: tuple[str, ...]
    """In the order in which they are shown; the first are the most decisive."""
    share: int
    """Its share of the characters, relative to the shares of the others."""
    fit: Callable[[int], tuple[str, ...]] | None = field(default=None, compare=False)
    """Chooses lines for a number of characters, for parts whose last lines are not simply the ones to drop."""

    @property
    def needs(self) -> int:
        return sum(len(line) + 1 for line in self.lines) + len(self.title) + 2 if self.lines else 0


def share_out(parts: Sequence[BriefPart], limit: int, first: Sequence[str]) -> dict[str, int]:
    """Characters for each part: its share, and what others do not use. `first`: the parts that get the rest, in this order."""
    whole = sum(part.share for part in parts)
    given = {part.name: min(part.needs, part.share * limit // whole) for part in parts}
    spare = limit - sum(given.values())
    named = {part.name: part for part in parts}
    for name in first:
        more = min(named[name].needs - given[name], max(0, spare)) if name in named else 0
        if name in named:
            given[name] += more
            spare -= more
    return given


def cut_part(part: BriefPart, size: int) -> list[str]:
    """Its title and as many lines as fit, and how much was left out."""
    if not part.lines:
        return []
    if part.needs <= size:
        return ["", part.title, *part.lines]
    room = size - len(part.title) - 2 - _TAIL
    kept = list(part.fit(room)) if part.fit else _first_lines(part.lines, room)
    left = len(part.lines) - len(kept)
    return ["", part.title, *kept, f"({left} more lines: part `{part.name}`)"]


def _first_lines(lines: Sequence[str], room: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0 and kept:
            break
        kept.append(line if room >= 0 else f"{line[: len(line) + room]}…")
    return kept
