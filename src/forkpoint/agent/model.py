"""The one thing that is asked of a model: given what was said and what may be called, say something.

Behind it stand providers (`providers/`), a transcript (`replay.py`), or a script in a test. All the rest, which tools
there are, what is believed, when it ends, is decided on this side.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as a model sees it."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: str
    """JSON as the model wrote it: may be anything."""


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """None: the provider's price is not known."""


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    calls: tuple[Call, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Said:
    """By the engine: instructions or facts."""

    text: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A call's result."""

    call: Call
    text: str


Message = Said | Reply | Answered


class ModelFailed(Exception):
    """No usable reply: unreachable, too slow, refused, or not what the protocol says. The text is one line."""


class Model(Protocol):
    @property
    def name(self) -> str:
        """`PROVIDER:NAME`, for the record."""
        ...

    def ask(
        self,
        instructions: str,
        messages: Sequence[Message],
        offers: Sequence[Offer],
        within_s: float,
        hear: Callable[[str], None],
    ) -> Reply:
        """`hear` gets text as it arrives. Raises ModelFailed."""
        ...
