"""Forks made of a place, or of a decision around it."""

import ast

from forkpoint.bridge.fork import Fork, ForkKind
from forkpoint.bridge.places import Place, Places
from forkpoint.bridge.tree import Deciding, head
from forkpoint.bridge.why import how_different
from forkpoint.bridge.words import because, tell_condition
from forkpoint.source.analysis import Analysis
from forkpoint.source.code import Function
from forkpoint.source.value import Reasons


def place_fork(
    kind: ForkKind, place: Place, places: Places, sentence: str, cohort: int | None, reasons: Reasons = frozenset()
) -> Fork | None:
    """The statement at a place."""
    spot = next(iter(places.spots(place)), None)
    if spot is None or spot.node is None:
        return None
    return Fork(kind, place.function, spot.node, None, reasons, None, cohort, 0.0, f"{sentence}{because(reasons)}")


def decision_fork(
    node: Deciding, function: Function, analysis: Analysis, sentence: str, cohort: int | None
) -> tuple[Fork, float]:
    """A branch or loop with why it can differ, and how likely it does."""
    test = head(node)
    reasons, differs = how_different(node, test, function, analysis)
    kind = ForkKind.LOOP if isinstance(node, ast.For | ast.AsyncFor | ast.While) else ForkKind.SKIPPED
    told = f"by {tell_condition(test, function)} {sentence}{because(reasons)}"
    return Fork(kind, function, node, test, reasons, None, cohort, 0.0, told), differs
