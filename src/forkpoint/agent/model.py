"""The interface of a model: messages and tools in, a reply out; and its budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Protocol

# ---------------------------------------------------------------------------------------------------------------------
# The interface of a model: messages and tools in, a reply out.
#
# Implemented by providers (`providers/`), by a transcript (`transcript.py`), and by scripts in tests. The engine decides
# everything else: which tools exist, what is believed, when to stop.


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
    """JSON as the model wrote it; may be invalid."""


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
    """No usable reply: unreachable, too slow, refused, or against the protocol. The text is one line."""


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


# ---------------------------------------------------------------------------------------------------------------------
# The budget of a model. When it is spent, the explanation ends; the verdict does not change.

_FOR_READING: Final = 0.6
"""Share of tokens and time after which no reading phase starts, so that even a slow model hands in a hypothesis."""


class Spent(Exception):
    """A budget is used up; the text says which."""


@dataclass(frozen=True, slots=True)
class Budget:
    requests: int = 24
    tool_calls: int = 16
    tokens: int = 200_000
    """Sent and received, over all requests."""
    cost_usd: float | None = None
    """Applies if the provider's price is known."""
    seconds: float = 300.0
    """Of waiting for the model."""
    facts: int = 30
    """Shown at a time. A model with a small context reads little at once."""

    def __post_init__(self) -> None:
        limits = (
            self.requests,
            self.tokens,
            self.seconds,
            self.facts,
            *([] if self.cost_usd is None else [self.cost_usd]),
        )
        if self.tool_calls < 0 or not all(0 < limit < inf for limit in limits):
            raise ValueError("a budget is a number above zero; tool calls may be none")


class Account:
    """What was spent of a budget."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.requests = 0
        self.tool_calls = 0
        self.seconds = 0.0
        self.usage = Usage()

    def check(self) -> None:
        """Before a request. Raises Spent."""
        limits = (
            (self.requests >= self.budget.requests, f"{self.budget.requests} requests"),
            (self.tokens >= self.budget.tokens, f"{self.budget.tokens:,} tokens"),
            (self.seconds >= self.budget.seconds, f"{self.budget.seconds:g} seconds"),
            (self._too_dear, f"${self.budget.cost_usd or 0:g}"),
        )
        spent = next((what for over, what in limits if over), None)
        if spent is not None:
            raise Spent(f"the budget of {spent} is used up")

    def add(self, usage: Usage, seconds: float) -> None:
        self.requests += 1
        self.seconds += seconds
        costs = [cost for cost in (self.usage.cost_usd, usage.cost_usd) if cost is not None]
        self.usage = Usage(
            self.usage.input_tokens + usage.input_tokens,
            self.usage.output_tokens + usage.output_tokens,
            sum(costs) if costs else None,
        )

    @property
    def tokens(self) -> int:
        return self.usage.input_tokens + self.usage.output_tokens

    @property
    def may_read_on(self) -> bool:
        """Enough is left to start another reading phase and still hand in a hypothesis."""
        return self.tokens < _FOR_READING * self.budget.tokens and self.seconds < _FOR_READING * self.budget.seconds

    @property
    def seconds_left(self) -> float:
        return self.budget.seconds - self.seconds

    @property
    def may_look(self) -> bool:
        return self.tool_calls < self.budget.tool_calls

    @property
    def _too_dear(self) -> bool:
        limit = self.budget.cost_usd
        return limit is not None and (self.usage.cost_usd or 0.0) >= limit
