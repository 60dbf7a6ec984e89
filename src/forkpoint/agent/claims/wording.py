"""A claim's own fields in words. They are a model's: none can act on a terminal, end a quotation or fill a page."""

from collections.abc import Sequence

from forkpoint.model.ranks import name_ranks
from forkpoint.report.escape import escape

_LONGEST = 80
_LARGEST = 10**12
"""No rank, line or seq comes near it."""


def named(text: str, longest: int = _LONGEST) -> str:
    """In backquotes, with no other one inside."""
    shown = escape(text[:longest]).replace("`", "'")
    return f"`{shown[:longest]}...`" if len(shown) > longest or len(text) > longest else f"`{shown}`"


def number(value: int) -> str:
    return str(value) if is_plain(value) else "(an invalid number)"


def told_ranks(ranks: Sequence[int]) -> str:
    plain = {rank for rank in ranks if is_plain(rank)}
    if not plain:
        return "no valid rank"
    return name_ranks(plain) if len(plain) == len(set(ranks)) else f"{name_ranks(plain)} and invalid ones"


def is_plain(value: int) -> bool:
    """Small enough to be looked for, and to be printed."""
    return 0 <= value < _LARGEST
