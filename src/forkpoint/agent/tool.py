"""What a tool is: a question that the engine answers with facts. Tools read the case, and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.wire import Wire


class Refused(Exception):
    """The question cannot be answered as it was asked; the text says what would be possible."""


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    """For the model: one or two sentences."""
    arguments: type[Wire]
    answer: Callable[[Case, Any], Sequence[Fact]]
    """Takes an instance of `arguments`. Raises Refused."""
