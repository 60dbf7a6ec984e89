"""A place in the source where cohorts may have separated, and how well it explains the divergence."""

import ast
from dataclasses import dataclass
from enum import StrEnum

from forkpoint.source.branches import CommStep
from forkpoint.source.code import Function
from forkpoint.source.flow import Turn
from forkpoint.source.value import Reasons

# ---------------------------------------------------------------------------------------------------------------------
# A place in the source where cohorts may have separated.


class ForkKind(StrEnum):
    SKIPPED = "skipped"
    """Some ranks took a branch that the others did not."""
    LEFT = "left"
    """Some ranks took a `return`, `continue` or `break`; the others continued."""
    LOOP = "loop"
    """A loop ran more rounds on some ranks."""
    CAUGHT = "caught"
    """Some ranks caught an exception and continued."""
    ORDER = "order"
    """The same calls, in an order that differs by rank."""
    ARGUMENT = "argument"
    """One call, with an argument that differs."""
    RAISED = "raised"
    """A rank raised an exception or ended, and left the others."""
    THREAD = "thread"
    """An exception ended a thread of one rank, and its main thread continued without it."""
    UNUSED = "unused"
    """Some ranks left parameters of a wrapped model without a gradient."""
    UNSYNCED = "unsynced"
    """A backward pass reduced gradients on some ranks only."""
    STEERED = "steered"
    """A callback or the program's data told a library to do something else on some ranks."""
    HELD = "held"
    """A rank is stuck or slow; all ranks took the same path."""


SURE = 0.4
"""Below this confidence, another place explains the divergence nearly as well, or nothing shows why this place would."""


@dataclass(frozen=True, slots=True)
class Fork:
    kind: ForkKind
    function: Function
    node: ast.stmt | ast.expr | ast.ExceptHandler
    """The branch, loop, handler or call."""
    test: ast.expr | None
    """The condition or range that decides, or the argument that differs."""
    reasons: Reasons
    """Why that can differ by rank; empty if the source does not show it."""
    step: CommStep | None
    """The communication that only some ranks did."""
    cohort: int | None
    """Index of the cohort that it explains, in the divergence."""
    confidence: float
    sentence: str
    """What happened, in one plain sentence."""
    headlines: tuple[str, ...] = ()
    """The same as headlines: who did what where and why, the most detailed first; empty if stacks alone say as much."""


# ---------------------------------------------------------------------------------------------------------------------
# A fork with how well it explains, before all are compared.


@dataclass(frozen=True, slots=True)
class Weighed:
    fork: Fork
    weight: float


# ---------------------------------------------------------------------------------------------------------------------
# The decision behind a fork.


@dataclass(frozen=True, slots=True)
class Separation:
    """A decision after which one side reaches its call and the other does not."""

    function: Function
    usual: Turn | None
    odd: Turn | None
    """How each side decided; None if it continued without an exception."""
    separates: float
    """0 to 1: how much more it costs each side to reach its call if it decides as the other did."""
    slack: int
    """Cost of the cheapest paths through it, above the cheapest paths overall."""
    slip: bool = False
    """It separates nobody at this point, but lets a rank skip a call in an earlier round, which shows only later."""

    @property
    def turn(self) -> Turn:
        found = self.odd if self.odd is not None and self.odd.test is None else self.usual or self.odd
        assert found is not None
        return found
