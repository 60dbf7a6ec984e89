"""A condition decides whether a call is reached.

| the call, in the function of the condition | is |
|---|---|
| is reached for one outcome of the condition and not for another, or in more rounds | supported |
| is a pass of a wrapped model, which the condition puts under `no_sync` or not | supported |
| is reached whatever the condition decides, or is before it | contradicted |
| is in another function; nothing is decided or called on these lines; no source | unverifiable |

The call may be any call, also one that only leads to a collective.
"""

import ast
from typing import Literal

from forkpoint.agent.case import Case
from forkpoint.agent.claim import Check, Claim, Status
from forkpoint.agent.claims.decisions import Line, deciding_at, find_line
from forkpoint.agent.claims.wording import named, number
from forkpoint.agent.tools.answers import fact
from forkpoint.source.apis import ApiKind
from forkpoint.source.dependence import decides
from forkpoint.source.syntax import DecidingNode, ancestors, last_word


class Guards(Claim):
    """A branch, loop or handler decides whether a call of the same function is reached."""

    kind: Literal["guards"]
    file: str
    line: int
    """Of the condition, the loop or the handler."""
    call_line: int
    """In the same file and function."""

    def sentence(self) -> str:
        return f"{named(self.file)} line {number(self.line)} decides whether line {number(self.call_line)} is reached"

    def check(self, case: Case) -> Check:
        line, called = (find_line(self.file, n, case) for n in (self.line, self.call_line))
        if isinstance(line, Check):
            return line
        if isinstance(called, Check):
            return called
        nodes, calls = deciding_at(line), calls_at(called)
        why = (
            (not nodes and f"nothing is decided on {case.clean(str(line))}")
            or (not calls and f"nothing is called on {case.clean(str(called))}")
            or (line.function is not called.function and f"these lines are in two functions{_leading(line, called)}")
        )
        if why:
            return Check.unverifiable(why)
        facts = tuple(fact(case, str(one), one.text) for one in (line, called))
        return Check(*_ANSWERS[_answer(nodes, calls, line)], facts)


_ANSWERS = {
    True: (Status.SUPPORTED, "whether the call is reached depends on it"),
    False: (Status.CONTRADICTED, "the call is reached, or not, whatever is decided there"),
    None: (Status.UNVERIFIABLE, "the call is not made where it is written, or not in this function's own order"),
}


def _answer(nodes: list[DecidingNode], calls: list[ast.Call], line: Line) -> bool | None:
    answers = {_quiets(n, c, line) or decides(n, c, line.function) for n in nodes for c in calls}
    return next(a for a in (True, None, False) if a in answers)


def _quiets(node: DecidingNode, call: ast.Call, line: Line) -> bool:
    """`with no_sync() if more else nullcontext():` decides whether a pass in it communicates."""
    api = line.analysis.communication.api(call, line.function)
    if not isinstance(node, ast.IfExp) or api is None or api.kind is not ApiKind.IMPLICIT:
        return False
    around = [outer for outer, _ in ancestors(call, line.function) if isinstance(outer, ast.With)]
    chosen = any(node is item.context_expr for outer in around for item in outer.items)
    return chosen and "no_sync" in {last_word(node.body), last_word(node.orelse)}


def calls_at(line: Line) -> list[ast.Call]:
    """Those that communicate or lead to what does, if there are such; else all."""
    here = [c for c in line.function.calls if line.number in {c.lineno, c.func.end_lineno}]
    here = here or [c for c in line.function.calls if c.lineno <= line.number <= (c.end_lineno or c.lineno)]
    communication, function = line.analysis.communication, line.function
    speaking = [c for c in here if communication.api(c, function) or communication.reach(c, function)]
    return speaking or here


def _leading(line: Line, called: Line) -> str:
    """Which line of the condition's function to name instead."""
    calls = line.function.calls
    leading = [c.lineno for c in calls if called.function in line.analysis.resolver.callees(c, line.function).functions]
    return f"; line {leading[0]} calls {called.function.short}" if leading else ""
