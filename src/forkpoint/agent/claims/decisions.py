"""Decisions on a line of source: branches, loops, handlers, conditional expressions."""

import ast
from dataclasses import dataclass

from forkpoint.agent.case import Case
from forkpoint.agent.claim import Check
from forkpoint.agent.claims.wording import is_plain, named, number
from forkpoint.agent.tool import Refused
from forkpoint.agent.tools.sources import find_module as shown_module
from forkpoint.agent.tools.sources import name_module
from forkpoint.source.analysis import Analysis
from forkpoint.source.code import Function, Module
from forkpoint.source.syntax import DecidingNode, own_nodes, tests_of

_ARMED = ast.If | ast.While | ast.For | ast.AsyncFor | ast.Try | ast.TryStar


@dataclass(frozen=True, slots=True)
class Line:
    """A line of source, and the function around it."""

    analysis: Analysis
    module: Module
    function: Function
    number: int
    name: str
    """The path of the file below the source root."""

    @property
    def text(self) -> str:
        return self.module.lines[self.number - 1].decode("utf-8", "replace").strip()

    def __str__(self) -> str:
        return f"{self.name}:{self.number}"


def find_line(file: str, number_: int, case: Case) -> Line | Check:
    if case.analysis is None:
        return Check.unverifiable("no source was given")
    module = find_module(file, case)
    if isinstance(module, Check):
        return module
    function = module.function_at(number_) if is_plain(number_) and number_ > 0 else None
    if function is None:
        return Check.unverifiable(f"{named(file)} has no line {number(number_)}")
    return Line(case.analysis, module, function, number_, name_module(case, module))


def find_module(file: str, case: Case) -> Module | Check:
    """By the name that tools use, or by a path as in a traceback, if only one module has that ending."""
    try:
        return shown_module(case, file)
    except Refused as refused:
        by_end = case.analysis.program.module_at(file) if case.analysis is not None else None
        return by_end or Check.unverifiable(str(refused))


def deciding_at(line: Line) -> list[DecidingNode]:
    """Decisions whose head, or `else:`, is on this line; outer ones first."""
    found: list[DecidingNode] = []
    for node in own_nodes(line.function.node):
        if isinstance(node, DecidingNode) and line.number in _head(node):
            found.append(node)
        elif isinstance(node, _ARMED) and _is_else(node, line):
            found += node.handlers if isinstance(node, ast.Try | ast.TryStar) else [node]
        elif isinstance(node, ast.Try | ast.TryStar) and node.lineno == line.number:
            found += node.handlers
        elif isinstance(node, ast.Match) and any(line.number in _case_head(c) for c in node.cases):
            found.append(node)
    return found


def whole_decisions(nodes: list[DecidingNode]) -> list[DecidingNode]:
    """Without those inside the head of another: `if a and b:` is one decision."""
    inside = {inner for n in nodes if isinstance(n, ast.stmt) for test in tests_of(n) for inner in ast.walk(test)}
    return [n for n in nodes if n not in inside]


def _head(node: DecidingNode) -> range:
    if isinstance(node, ast.comprehension):
        return range(node.target.lineno, _end(node.ifs[-1] if node.ifs else node.iter) + 1)
    if isinstance(node, ast.ExceptHandler):
        return range(node.lineno, _end(node.type) + 1 if node.type is not None else node.lineno + 1)
    if isinstance(node, ast.IfExp | ast.BoolOp):
        return range(node.lineno, _end(node) + 1)
    return range(node.lineno, max(_end(test) for test in tests_of(node)) + 1)


def _case_head(case: ast.match_case) -> range:
    return range(case.pattern.lineno, _end(case.guard or case.pattern) + 1)


def _is_else(node: ast.If | ast.While | ast.For | ast.AsyncFor | ast.Try | ast.TryStar, line: Line) -> bool:
    above = node.handlers[-1].body if isinstance(node, ast.Try | ast.TryStar) and node.handlers else node.body
    between = bool(node.orelse) and _end(above[-1]) < line.number <= node.orelse[0].lineno
    return between and line.text.startswith("else")


def _end(node: ast.expr | ast.stmt | ast.pattern) -> int:
    return node.end_lineno or node.lineno
