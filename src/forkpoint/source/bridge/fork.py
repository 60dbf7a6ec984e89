"""A place in the source where cohorts may have separated, and how well it explains the divergence."""

import ast
from dataclasses import dataclass
from enum import StrEnum

from forkpoint.source.branches import CommStep
from forkpoint.source.code import Function
from forkpoint.source.value import Reasons

# ---------------------------------------------------------------------------------------------------------------------
# A place in the source where cohorts may have separated.


class ForkKind(StrEnum):
    SKIPPED = "skipped"
    """Some ranks took a branch that the others did not."""
    LEFT = "left"
    """Some ranks took a `return`, `continue` or `break`; the others went on."""
    LOOP = "loop"
    """A loop ran more rounds on some ranks."""
    CAUGHT = "caught"
    """Some ranks caught an exception and went on."""
    ORDER = "order"
    """The same calls, in an order that differs by rank."""
    ARGUMENT = "argument"
    """One call, with an argument that differs."""
    RAISED = "raised"
    """A rank raised an exception or ended, and left the others."""
    HELD = "held"
    """A rank is stuck or slow; all ranks took the same path."""


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


# ---------------------------------------------------------------------------------------------------------------------
# A fork with how well it explains, before all are compared.


@dataclass(frozen=True, slots=True)
class Weighed:
    fork: Fork
    weight: float
