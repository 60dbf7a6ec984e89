"""What a rank hands over when it is asked: its dump, its stacks, and what it knows of itself."""

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from forkpoint.model.world import ProcessGroup

_MAX_BYTES: Final = 64 << 20
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
class Answer:
    rank: int
    world_size: int
    groups: tuple[ProcessGroup, ...]
    stacks: str
    steps: dict[int, dict[str, int]]
    """Of each group, by name: calls at the end of the last steps."""
    dump: bytes = field(repr=False)


def encode_ask(ask: Ask) -> bytes:
    return json.dumps(asdict(ask)).encode()


def decode_ask(data: bytes | None) -> Ask:
    try:
        raw: dict[str, Any] = json.loads(data) if data else {}
        keep = str(raw.get("keep", ""))
        ranks = tuple(int(rank) for rank in raw.get("ranks", ()))
        return Ask(int(raw.get("number", 0)), ranks, keep if _NAME.fullmatch(keep) else "")
    except (ValueError, TypeError, AttributeError):
        return Ask()


def encode(answer: Answer) -> bytes:
    """A line of JSON, then the dump."""
    head = {
        "rank": answer.rank,
        "world_size": answer.world_size,
        "groups": [(g.name, g.desc, g.ranks) for g in answer.groups],
        "stacks": answer.stacks,
        "steps": answer.steps,
    }
    return json.dumps(head).encode() + b"\n" + answer.dump


def decode(data: bytes) -> Answer | None:
    """None: not an answer. Anyone who reaches the store can write there, and a rank becomes part of a file's name."""
    if len(data) > _MAX_BYTES:
        return None
    head, _, dump = data.partition(b"\n")
    try:
        raw: dict[str, Any] = json.loads(head)
        return Answer(
            rank=int(raw["rank"]),
            world_size=int(raw["world_size"]),
            groups=tuple(ProcessGroup(str(n), str(d), tuple(map(int, ranks))) for n, d, ranks in raw["groups"]),
            stacks=str(raw["stacks"]),
            steps={int(step): {str(k): int(v) for k, v in c.items()} for step, c in raw["steps"].items()},
            dump=dump,
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
