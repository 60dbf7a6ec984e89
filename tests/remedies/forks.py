"""Forks in small programs, as the bridge would give them."""

import ast
from pathlib import Path

from forkpoint.model.verdict import Fix, Probe
from forkpoint.remedies import remedies
from forkpoint.source import read_program
from forkpoint.source.analysis import Analysis, analyse
from forkpoint.source.branches import CommStep, skipped
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.code import Function

_NODES = {
    ForkKind.LOOP: ast.For | ast.While,
    ForkKind.CAUGHT: ast.ExceptHandler,
    ForkKind.ARGUMENT: ast.Call,
    ForkKind.HELD: ast.stmt,
    ForkKind.ORDER: ast.For | ast.If,
}


def fork_at(analysis: Analysis, kind: ForkKind, line: int, file: str = "train.py") -> Fork:
    """The node of a fitting sort that begins in this line."""
    module = analysis.program.module_at(file)
    assert module is not None
    found = [
        (function, node)
        for function in module.functions.values()
        for node in ast.walk(function.node)
        if isinstance(node, _NODES.get(kind, ast.If)) and node.lineno == line
    ]
    function, node = max(found, key=lambda pair: pair[0].line)
    decides = getattr(node, "test", None) or getattr(node, "iter", None)
    reasons = analysis.differences.test(decides, function).reasons if decides is not None else frozenset()
    return Fork(kind, function, node, decides, reasons, _step(node, function, analysis), None, 0.5, "")


def offered_at(folder: Path, kind: ForkKind, *lines: int, file: str = "train.py") -> tuple[list[Probe], list[Fix]]:
    analysis = analyse(read_program([str(folder)]))
    probes, fixes = remedies([fork_at(analysis, kind, line, file) for line in lines], None, analysis, [str(folder)])
    return list(probes), list(fixes)


def _step(node: ast.AST, function: Function, analysis: Analysis) -> CommStep | None:
    for branch in analysis.branches.of(function):
        if branch.node is node:
            inside = [step for arm in branch.arms for step in arm.steps]
            outside = [step for arm in branch.arms for way in sorted(arm.may_leave) for step in skipped(branch, way)]
            return next(iter([*inside, *outside]), None)
    return None
