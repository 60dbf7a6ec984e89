"""Probe and fix for the exact line where ranks diverged: the engine's remedies for an observed fork."""

import ast
from collections.abc import Sequence
from typing import Any

from forkpoint.rehearse.paths import SeenFork
from forkpoint.remedies import remedies
from forkpoint.source import read_program
from forkpoint.source.analysis import Analysis, analyse
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.code import Function
from forkpoint.source.value import NO_REASONS

_LEAVES = ast.Return | ast.Continue | ast.Break


def with_remedies(verdict: dict[str, Any], seen: SeenFork, roots: Sequence[str]) -> dict[str, Any]:
    """The verdict with remedies for this line first; unchanged if the source does not show the decision."""
    analysis = analyse(read_program(list(roots)))
    fork = locate(seen, analysis)
    if fork is None:
        return verdict
    probes, fixes = remedies((fork,), None, analysis, list(roots))
    named = [{"title": p.title, "where": p.where, "patch": p.patch} for p in probes]
    mended = [{"title": f.title, "patch": f.patch} for f in fixes]
    return {
        **verdict,
        "probes": [*named, *(p for p in verdict["probes"] if p["title"] not in {n["title"] for n in named})],
        "fixes": [*mended, *(f for f in verdict["fixes"] if f["title"] not in {m["title"] for m in mended})],
    }


def locate(seen: SeenFork, analysis: Analysis) -> Fork | None:
    """The branch, loop or handler that decides at this line."""
    module = analysis.program.module_at(seen.file)
    function = module.function_at(seen.line) if module else None
    if function is None:
        return None
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.ExceptHandler) and node.lineno == seen.went_to:
                return _fork(ForkKind.CAUGHT, function, node, None, analysis)
            if isinstance(node, ast.For | ast.While) and node.lineno == seen.line:
                return _fork(
                    ForkKind.LOOP, function, node, node.iter if isinstance(node, ast.For) else node.test, analysis
                )
            if isinstance(node, ast.If) and node.lineno <= seen.line <= (node.test.end_lineno or node.lineno):
                left = any(isinstance(part, _LEAVES) for part in (*node.body, *node.orelse))
                return _fork(ForkKind.LEFT if left else ForkKind.SKIPPED, function, node, node.test, analysis)
    return None


def _fork(
    kind: ForkKind, function: Function, node: ast.stmt | ast.ExceptHandler, test: ast.expr | None, analysis: Analysis
) -> Fork:
    reasons = analysis.differences.test(test, function).reasons if test is not None else NO_REASONS
    branch = analysis.branches.at(node, function)
    steps = [step for arm in branch.arms for step in arm.steps] if branch else []
    return Fork(
        kind,
        function,
        node,
        test,
        reasons,
        steps[0] if steps else None,
        None,
        1.0,
        "ranks diverged here in a rehearsal",
    )
