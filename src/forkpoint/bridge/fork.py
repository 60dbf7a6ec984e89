"""A place in source at which the ways of cohorts can have parted, as the bridge found it."""

import ast
from dataclasses import dataclass
from enum import StrEnum

from forkpoint.source.branches import Step
from forkpoint.source.code import Function
from forkpoint.source.value import Reasons


class ForkKind(StrEnum):
    SKIPPED = "skipped"
    """On one side of a branch stands what the other side does not do."""
    LEFT = "left"
    """`return`, `continue` or `break` before something that the others went on to."""
    LOOP = "loop"
    """A loop that ran more often on some ranks."""
    CAUGHT = "caught"
    """An exception was caught and passed over."""
    ORDER = "order"
    """The same calls in an order that is not the same on all ranks."""
    ARGUMENT = "argument"
    """One call, with an argument that differs."""
    RAISED = "raised"
    """Where a rank's own exception, or its end, took it away from the others."""
    HELD = "held"
    """Where a rank is held on its own: nothing parted but time."""


@dataclass(frozen=True, slots=True)
class Fork:
    kind: ForkKind
    function: Function
    node: ast.stmt | ast.expr | ast.ExceptHandler
    """The branch, loop, handler or call."""
    test: ast.expr | None
    """The condition or range that decides, or the argument that differs."""
    reasons: Reasons
    """Why that can differ by rank; empty where source does not show it."""
    step: Step | None
    """The communication that some ranks did and others did not."""
    cohort: int | None
    """Index in the divergence of the cohort that it explains."""
    confidence: float
    sentence: str
    """What happened, in one plain sentence."""
