"""What a rank hands over when it is asked: its dump, its stacks, and what it knows of itself."""

import re
from dataclasses import dataclass, field, replace
from typing import Final

from forkpoint.guard.wire import decode
from forkpoint.model.world import ProcessGroup

_NAME: Final = re.compile(r"[0-9]{8}-[0-9]{6}")


@dataclass(frozen=True, slots=True)
class Ask:
    number: int = 0
    """One higher for each; 0 = nothing was asked yet."""
    ranks: tuple[int, ...] = ()
    """Who is asked; nobody in particular means everybody."""
    keep: str = ""
    """Leave the files in a folder of this name, a time, where this rank is set to write; "" = tell them through the store.
    Only a name: whoever reaches the store must not choose where a rank writes."""


@dataclass(frozen=True, slots=True)
class RankAnswer:
    rank: int
    world_size: int
    groups: tuple[ProcessGroup, ...]
    stacks: str
    steps: dict[int, dict[str, int]]
    """Of each group, by name: calls at the end of the last steps."""
    dump: bytes = field(repr=False)


def decode_ask(data: bytes | None) -> Ask:
    ask = decode(data, Ask) or Ask()
    return ask if _NAME.fullmatch(ask.keep) else replace(ask, keep="")
