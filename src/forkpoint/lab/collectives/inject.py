"""Faults that can be planted, to show that they are found."""

from collections.abc import Callable
from dataclasses import dataclass

from forkpoint.errors import UsageError
from forkpoint.lab.collectives.arguments import FORMS
from forkpoint.lab.collectives.kinds import KIND_BY_NAME


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of what a rank received is flipped."""

    rank: int
    kind: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The last element that a rank should receive is missing."""

    rank: int
    kind: str


@dataclass(frozen=True, slots=True)
class UnequalSizes:
    """A rank really gives one element less than the others. Gloo and NCCL do not compare the numbers."""

    rank: int
    kind: str


@dataclass(frozen=True, slots=True)
class Delay:
    """A slow link: each message between two ranks takes so much longer."""

    one: int
    other: int
    ms: float


@dataclass(frozen=True, slots=True)
class Die:
    rank: int


@dataclass(frozen=True, slots=True)
class Hang:
    rank: int


Injected = Flip | Lost | UnequalSizes | Delay | Die | Hang

_PLANTED: dict[str, tuple[int, Callable[[list[str]], Injected]]] = {
    "flip": (2, lambda f: Flip(int(f[0]), _kind(f[1]))),
    "lost": (2, lambda f: Lost(int(f[0]), _kind(f[1]))),
    "unequal": (2, lambda f: UnequalSizes(int(f[0]), _kind(f[1]))),
    "delay": (3, lambda f: Delay(int(f[0]), int(f[1]), float(f[2]))),
    "die": (1, lambda f: Die(int(f[0]))),
    "hang": (1, lambda f: Hang(int(f[0]))),
}


def parse_injected(text: str) -> Injected:
    """`flip:3:all_gather` and the like."""
    name, *fields = text.split(":")
    wanted, make = _PLANTED.get(name, (-1, None))
    try:
        planted = make(fields) if make and len(fields) == wanted else None
    except ValueError:
        planted = None
    if planted is None:
        raise UsageError(f"{text} plants nothing: write one of {FORMS}")
    return planted


def _kind(name: str) -> str:
    if name not in KIND_BY_NAME:
        raise ValueError
    return name
