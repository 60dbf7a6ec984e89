"""Forks at a line, or at a decision around it."""

import ast

from forkpoint.bridge.fork import Fork, ForkKind
from forkpoint.bridge.places import CodeLine, StackMap
from forkpoint.bridge.why import how_different
from forkpoint.bridge.words import because
from forkpoint.source.analysis import Analysis
from forkpoint.source.code import Function
from forkpoint.source.syntax import BranchOrLoop, test_of
from forkpoint.source.value import Reasons


def place_fork(
    kind: ForkKind, place: CodeLine, places: StackMap, sentence: str, cohort: int | None, reasons: Reasons = frozenset()
) -> Fork | None:
    """At the statement on a line; None if the line has none."""
    point = next(iter(places.points(place)), None)
    if point is None or point.node is None:
        return None
    return Fork(kind, place.function, point.node, None, reasons, None, cohort, 0.0, f"{sentence}{because(reasons)}")


def decision_fork(
    node: BranchOrLoop, function: Function, analysis: Analysis, sentence: str, cohort: int | None
) -> tuple[Fork, float]:
    """At a branch or loop, with the likelihood that it differs by rank."""
    test = test_of(node)
    reasons, differs = how_different(node, test, function, analysis)
    kind = ForkKind.LOOP if isinstance(node, ast.For | ast.AsyncFor | ast.While) else ForkKind.SKIPPED
    told = f"{sentence}{because(reasons)}"
    return Fork(kind, function, node, test, reasons, None, cohort, 0.0, told), differs
