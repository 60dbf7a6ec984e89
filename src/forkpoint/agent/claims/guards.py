"""Claim: a condition decides whether a call is reached. Also finds the branches, loops and handlers on a line."""

import ast
from dataclasses import dataclass
from typing import Literal

from forkpoint.agent.case import Claim, ClaimCheck, ClaimStatus
from forkpoint.brief.case import Case, QuestionRefused, fact, is_plain, name_module, named, number
from forkpoint.brief.case import find_module as shown_module
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind
from forkpoint.source.code import Function, Module
from forkpoint.source.dependence import decides
from forkpoint.source.syntax import (
    DecidingNode,
    ancestors,
    assignments,
    last_word,
    names_and_attributes_in,
    names_set_in,
    own_nodes,
    statement_of,
    tests_of,
)

# ---------------------------------------------------------------------------------------------------------------------
# Decisions on a line of source: branches, loops, handlers, conditional expressions.

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


def find_line(file: str, number_: int, case: Case) -> Line | ClaimCheck:
    if case.analysis is None:
        return ClaimCheck.unverifiable("no source was given")
    module = find_module(file, case)
    if isinstance(module, ClaimCheck):
        return module
    function = module.function_at(number_) if is_plain(number_) and number_ > 0 else None
    if function is None:
        return ClaimCheck.unverifiable(f"{named(file)} has no line {number(number_)}")
    return Line(case.analysis, module, function, number_, name_module(case, module))


def find_module(file: str, case: Case) -> Module | ClaimCheck:
    """By the name that tools show, or by a path as in a traceback if only one module matches its end."""
    try:
        return shown_module(case, file)
    except QuestionRefused as refused:
        by_end = case.analysis.program.module_at(file) if case.analysis is not None else None
        return by_end or ClaimCheck.unverifiable(str(refused))


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
    """Drops those inside the head of another: `if a and b:` is one decision."""
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


# ---------------------------------------------------------------------------------------------------------------------
# A condition decides whether a call is reached.
#
# | the call, in the function of the condition | is |
# |---|---|
# | is reached for one outcome of the condition and not for another, or is in the body of the loop | supported |
# | is a forward or backward pass of a wrapped model, and the condition chooses whether it runs under `no_sync` | supported |
# | comes first, and no loop contains both; or is reached for every outcome, and the arms call nothing, loop over nothing, and
#   set nothing that a condition of the call reads | contradicted |
# | comes after arms that call something (which may raise or never return), or after a loop (which may not end); depends on a
#   value that is set there; is in another function; these lines decide or call nothing; no source | unverifiable |
#
# Any call will do, also one that only leads to a collective.


class Guards(Claim):
    """A branch, loop or handler decides whether a call in the same function is reached."""

    kind: Literal["guards"]
    file: str
    line: int
    """Of the condition, the loop or the handler."""
    call_line: int
    """In the same file and function."""

    def sentence(self) -> str:
        return f"{named(self.file)} line {number(self.line)} decides whether line {number(self.call_line)} is reached"

    def check(self, case: Case) -> ClaimCheck:
        line, called = (find_line(self.file, n, case) for n in (self.line, self.call_line))
        if isinstance(line, ClaimCheck):
            return line
        if isinstance(called, ClaimCheck):
            return called
        nodes, calls = deciding_at(line), calls_at(called)
        why = (
            (not nodes and f"nothing is decided on {case.clean(str(line))}")
            or (not calls and f"nothing is called on {case.clean(str(called))}")
            or (line.function is not called.function and f"these lines are in two functions{_leading(line, called)}")
        )
        if why:
            return ClaimCheck.unverifiable(why)
        facts = tuple(fact(case, str(one), one.text) for one in (line, called))
        return ClaimCheck(*_ANSWERS[_answer(nodes, calls, line)], facts)


_MAY_PREVENT = (
    "every path reaches the call, but something on the way may raise, never end, or set a value that decides about it; or the "
    "call does not run in this function's own order"
)
_ANSWERS = {
    True: (ClaimStatus.SUPPORTED, "whether the call is reached depends on it"),
    False: (ClaimStatus.CONTRADICTED, "the decision does not affect whether the call is reached"),
    None: (ClaimStatus.UNVERIFIABLE, _MAY_PREVENT),
}


def _answer(nodes: list[DecidingNode], calls: list[ast.Call], line: Line) -> bool | None:
    answers = {_decides(n, c, line) for n in nodes for c in calls}
    return next(a for a in (True, None, False) if a in answers)


def _decides(node: DecidingNode, call: ast.Call, line: Line) -> bool | None:
    found = _chooses_no_sync(node, call, line) or decides(node, call, line.function)
    if found is not False or _is_before(call, node, line.function):
        return found
    return None if _may_prevent(node, call, line) else False


def _is_before(call: ast.Call, node: DecidingNode, function: Function) -> bool:
    """The call runs before the decision, and not again after it."""
    if any(call is part for test in tests_of(node) for part in ast.walk(test)):
        return True
    above = [{o for o, _ in ancestors(one, function) if isinstance(o, _LOOPS)} for one in (call, node)]
    return not above[0] & above[1] and (call.lineno, call.col_offset) < position_of(node)


_LOOPS = ast.While | ast.For | ast.AsyncFor
_MAY_NOT_END = ast.Call | ast.Await | ast.Yield | ast.YieldFrom | ast.With | ast.AsyncWith | ast.Assert | _LOOPS


def position_of(node: DecidingNode) -> tuple[int, int]:
    """Line and column; for a comprehension's `for`, those of its target."""
    at = node.target if isinstance(node, ast.comprehension) else node
    return at.lineno, at.col_offset


def _may_prevent(node: DecidingNode, call: ast.Call, line: Line) -> bool:
    """The decision can keep a rank from the call although every path leads to it: an arm calls something that may not return,
    a loop may not end, or an arm sets a value that a condition of the call reads.
    """
    arms = _arms(node, line.function)
    inside = [part for arm in arms for part in ast.walk(arm)]
    ends_loop = any(isinstance(part, ast.Break | ast.Continue) for part in inside)
    around = {o for o, _ in ancestors(call, line.function)}
    left = any(isinstance(o, _LOOPS) and o not in around for o, _ in ancestors(node, line.function))
    goes_round = isinstance(node, _LOOPS) and node not in around
    if goes_round or (ends_loop and left) or any(isinstance(part, _MAY_NOT_END) for part in inside):
        return True
    return not _names_in_conditions(call, line).isdisjoint(_flowing(names_set_in(arms), line.function))


def _arms(node: DecidingNode, function: Function) -> list[ast.AST]:
    match node:
        case ast.If():
            return [*node.body, *node.orelse]
        case ast.Match():
            return [statement for case in node.cases for statement in case.body]
        case ast.ExceptHandler():
            return [*node.body]
        case ast.IfExp() | ast.BoolOp() | ast.comprehension():
            around = statement_of(node, function)
            return [around] if isinstance(around, ast.Assign | ast.AnnAssign | ast.AugAssign) else []
        case _:
            return []


def _names_in_conditions(call: ast.Call, line: Line) -> set[str]:
    """Names read by the conditions that decide about the call."""
    deciding = (n for n in own_nodes(line.function.node) if isinstance(n, DecidingNode))
    tests = (t for n in deciding if decides(n, call, line.function) is not False for t in tests_of(n))
    return {name for test in tests for name in names_and_attributes_in(test)}


def _flowing(names: set[str], function: Function) -> set[str]:
    """These names, and all names assigned from them."""
    found, before = set(names), set[str]()
    while found != before:
        before = set(found)
        for target, value in assignments(function):
            if not names_and_attributes_in(value).isdisjoint(found):
                found |= names_and_attributes_in(target)
    return found


def _chooses_no_sync(node: DecidingNode, call: ast.Call, line: Line) -> bool:
    """`with no_sync() if more else nullcontext():` decides whether a pass inside it communicates."""
    api = line.analysis.communication.api(call, line.function)
    if not isinstance(node, ast.IfExp) or api is None or api.kind is not ApiKind.IMPLICIT:
        return False
    around = [outer for outer, _ in ancestors(call, line.function) if isinstance(outer, ast.With)]
    chosen = any(node is item.context_expr for outer in around for item in outer.items)
    return chosen and "no_sync" in {last_word(node.body), last_word(node.orelse)}


def calls_at(line: Line) -> list[ast.Call]:
    """Calls on the line that communicate, directly or further down; if there are none, all calls."""
    here = [c for c in line.function.calls if line.number in {c.lineno, c.func.end_lineno}]
    here = here or [c for c in line.function.calls if c.lineno <= line.number <= (c.end_lineno or c.lineno)]
    communication, function = line.analysis.communication, line.function
    speaking = [c for c in here if communication.api(c, function) or communication.reach(c, function)]
    return speaking or here


def _leading(line: Line, called: Line) -> str:
    """A hint: the line of the condition's function that leads to the call."""
    calls = line.function.calls
    leading = [c.lineno for c in calls if called.function in line.analysis.resolver.callees(c, line.function).functions]
    return f"; line {leading[0]} calls {called.function.short}" if leading else ""
