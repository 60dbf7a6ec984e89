"""How tools answer: facts that are clean, short and not too many."""

from collections.abc import Iterable, Sequence
from itertools import islice

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused

MAX_FACTS = 60
MAX_CHARACTERS = 300
_MAX_NAMED = 12
_MAX_NAME = 200
_CUT = "…"


def fact(case: Case, where: str, says: str) -> Fact:
    """Cleaned before it is cut: half a secret would not be known for one."""
    return Fact(_short(case.clean(where)), _short(case.clean(says)))


def answer(facts: Iterable[Fact], narrow: str) -> tuple[Fact, ...]:
    """As many as fit. `narrow`: how to ask for less, told where something was left out."""
    shown = tuple(islice(facts, MAX_FACTS + 1))
    if len(shown) <= MAX_FACTS:
        return shown
    return (*shown[: MAX_FACTS - 1], Fact("left out", f"more than {MAX_FACTS - 1} facts; {narrow}"))


def paragraphs(text: str) -> list[str]:
    """Long text in pieces that are not cut, broken where words end."""
    pieces = [""]
    for word in text.split():
        if len(pieces[-1]) + len(word) >= MAX_CHARACTERS:
            pieces.append("")
        pieces[-1] = f"{pieces[-1]} {word}".strip()
    return [piece for piece in pieces if piece]


def lines_around(asked: int | None, usual: int, most: int) -> int:
    """How many lines, slots or messages to show before and after."""
    return min(max(usual if asked is None else asked, 0), most)


def known_rank(case: Case, rank: int) -> int:
    world = case.incident.timeline.world
    if rank not in world:
        there = f"ranks are 0 to {world[-1]}" if world else "the evidence names no ranks"
        raise Refused(f"there is no rank {rank} in this case: {there}")
    return rank


def names(known: Sequence[str]) -> str:
    """Some of what there is, for a refusal."""
    more = f" and {len(known) - _MAX_NAMED} more" if len(known) > _MAX_NAMED else ""
    return ", ".join(name[:_MAX_NAME] for name in known[:_MAX_NAMED]) + more if known else "none"


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + _CUT
