"""Who says what, and who is odd."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from forkpoint.consensus.errors import RanksDisagree, Side
from forkpoint.model.ranks import name_ranks

_MAX_SIDES = 8
"""Sides spelled out in a message."""


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """What one member said in trouble."""

    rank: int
    failed: bool
    question: int
    """Digest of the whole: the text may be cut."""
    asked: str
    value: int
    """Likewise."""
    said: str


def disagreement(what: str, said: Iterable[tuple[int, int, str]]) -> RanksDisagree:
    """From (rank, digest, text) of every member. Odd is who differs from more than half of all; a tie accuses nobody."""
    ranks: defaultdict[int, list[int]] = defaultdict(list)
    texts: dict[int, str] = {}
    for rank, value, text in said:
        ranks[value].append(rank)
        texts[value] = text
    order = sorted(ranks, key=lambda value: (-len(ranks[value]), ranks[value]))
    sides = tuple(Side(tuple(ranks[value]), texts[value]) for value in order)
    members = sum(len(side.ranks) for side in sides)
    has_majority = 2 * len(sides[0].ranks) > members
    odd = tuple(sorted(rank for side in sides[1:] for rank in side.ranks)) if has_majority else ()
    return RanksDisagree(_message(what, sides, odd), sides, odd)


def _message(what: str, sides: tuple[Side, ...], odd: tuple[int, ...]) -> str:
    # The odd ones first: they are what the reader looks for.
    shown = [*sides[1:_MAX_SIDES], sides[0]] if odd else list(sides[:_MAX_SIDES])
    said = "; ".join(f"{name_ranks(side.ranks)}: {side.value}" for side in shown)
    more = f"; and {len(sides) - len(shown)} more values" if len(sides) > len(shown) else ""
    cut = " (equal as far as shown)" if len({side.value for side in sides}) < len(sides) else ""
    who = f"{name_ranks(odd)} differ{'s' if len(odd) == 1 else ''} from the majority" if odd else "no majority"
    return f"ranks disagree on {what}, {who}: {said}{more}{cut}"
