"""What a rank hands over when it is asked: its dump, its stacks, and what it knows of itself."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final

_MAX_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Ask:
    number: int = 0
    """One higher for each; 0 = nothing was asked yet."""
    ranks: tuple[int, ...] = ()
    """Who is asked; nobody in particular means everybody."""
    folder: str = ""
    """Where every rank is to leave its own files; "" = they are to be told through the store."""


@dataclass(frozen=True, slots=True)
class Answer:
    rank: int
    host: str
    pid: int
    world_size: int
    groups: tuple[tuple[str, str, tuple[int, ...]], ...]
    """Name, description and members."""
    stacks: str
    steps: dict[int, dict[str, int]]
    """Of each group, by name: calls at the end of the last steps."""
    dump: bytes = field(repr=False)


def encode_ask(ask: Ask) -> bytes:
    return json.dumps(asdict(ask)).encode()


def decode_ask(data: bytes | None) -> Ask:
    try:
        raw: dict[str, Any] = json.loads(data) if data else {}
        ranks = tuple(int(rank) for rank in raw.pop("ranks", ()))
        return Ask(ranks=ranks, **raw)
    except (ValueError, TypeError, AttributeError):
        return Ask()


def encode(answer: Answer) -> bytes:
    """A line of JSON, then the dump."""
    head = {name: getattr(answer, name) for name in ("rank", "host", "pid", "world_size", "groups", "stacks", "steps")}
    return json.dumps(head).encode() + b"\n" + answer.dump


def decode(data: bytes) -> Answer | None:
    """None: not an answer."""
    if len(data) > _MAX_BYTES:
        return None
    head, _, dump = data.partition(b"\n")
    try:
        raw: dict[str, Any] = json.loads(head)
        groups = tuple((str(n), str(d), tuple(map(int, ranks))) for n, d, ranks in raw.pop("groups"))
        steps = {int(step): {str(k): int(v) for k, v in c.items()} for step, c in raw.pop("steps").items()}
        return Answer(dump=dump, groups=groups, steps=steps, **raw)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
