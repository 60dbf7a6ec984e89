"""Claim: a value that is set on one line is used on another."""

import ast
from typing import Literal

from forkpoint.agent.case import Claim, ClaimCheck, ClaimStatus
from forkpoint.agent.claims.guards import Line, find_line
from forkpoint.brief.case import Case
from forkpoint.brief.naming import fact, named, number
from forkpoint.source.code import Function
from forkpoint.source.syntax import ancestors, assignments, own_nodes, statement_of

# ---------------------------------------------------------------------------------------------------------------------
# | the two lines | is |
# |---|---|
# | one sets a name, or an attribute of `self`, that the other reads, and nothing else in the function or class sets it; or a
#   chain of such names connects them | supported |
# | are in one function, share no loop, and the use of a local name comes first | contradicted |
# | anything else: the value is also set elsewhere, or passes through a call or a container | unverifiable |

_LOOPS = ast.For | ast.AsyncFor | ast.While


class ValueUsed(Claim):
    """A value that is set on one line is used on another."""

    kind: Literal["value-used"]
    file: str
    line: int
    """Where it is set."""
    used_line: int
    """In the same file."""

    def sentence(self) -> str:
        return f"what {named(self.file)} line {number(self.line)} sets is used on line {number(self.used_line)}"

    def check(self, case: Case) -> ClaimCheck:
        line, used = (find_line(self.file, n, case) for n in (self.line, self.used_line))
        if isinstance(line, ClaimCheck):
            return line
        if isinstance(used, ClaimCheck):
            return used
        names, reads = _names(line, stored=True), _names(used, stored=False)
        if not names:
            return ClaimCheck.unverifiable(f"nothing is set on {case.clean(str(line))}")
        facts = tuple(fact(case, str(one), one.text) for one in (line, used))
        chain = _chain(names, reads, line, used)
        if chain is not None:
            return ClaimCheck(ClaimStatus.SUPPORTED, f"it is used as {named(chain)}, which nothing else sets", facts)
        if _cannot_come(names, line, used):
            return ClaimCheck(
                ClaimStatus.CONTRADICTED,
                "the use comes before the value is set, and no loop contains both lines",
                facts,
            )
        return ClaimCheck(
            ClaimStatus.UNVERIFIABLE, "the source does not show whether it is this value that is used there", facts
        )


def _statements(line: Line) -> list[ast.stmt]:
    """Innermost statements on the line."""
    on_line = [
        node
        for node in own_nodes(line.function.node)
        if isinstance(node, ast.stmt) and node.lineno <= line.number <= (node.end_lineno or node.lineno)
    ]
    return on_line[-1:]


def _names(line: Line, *, stored: bool) -> set[str]:
    """Local names (`x`) and attributes of self (`self.x`)."""
    found: set[str] = set()
    for statement in _statements(line):
        heads = statement.body if isinstance(statement, ast.FunctionDef | ast.ClassDef) else []
        for node in ast.walk(statement):
            is_stored = isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load)
            if node in heads or (stored is not is_stored):
                continue
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                found.add(f"self.{node.attr}")
    return found - {"self"}


def _chain(names: set[str], reads: set[str], line: Line, used: Line) -> str | None:
    """The name that carries the value to the use, if every name in between is set only once."""
    attributes = {n for n in names if n.startswith("self.") and _is_only_writer(n, line)}
    if attributes & reads and line.function.owner is used.function.owner:
        return min(attributes & reads)
    if line.function is not used.function or _cannot_come(names, line, used):
        return None
    reached = {n for n in names if not n.startswith("self.") and _is_set_once(n, line.function)}
    for _ in range(len(line.function.own.assignments)):
        for target, value in assignments(line.function):
            inside = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
            if isinstance(target, ast.Name) and inside & reached and _is_set_once(target.id, line.function):
                reached.add(target.id)
    found = reached & reads
    return min(found) if found else None


def _is_set_once(name: str, function: Function) -> bool:
    stores = [n for n in ast.walk(function.node) if isinstance(n, ast.Name) and n.id == name]
    return sum(not isinstance(n.ctx, ast.Load) for n in stores) == 1 and name not in function.params


def _is_only_writer(name: str, line: Line) -> bool:
    owner = line.function.owner
    if owner is None:
        return False
    attr = name.removeprefix("self.")
    writers = [
        n
        for n in ast.walk(owner.node)
        if isinstance(n, ast.Attribute) and n.attr == attr and not isinstance(n.ctx, ast.Load)
    ]
    return len(writers) == 1


def _cannot_come(names: set[str], line: Line, used: Line) -> bool:
    """The use comes first. Decided for local names only, and not with nested functions, which may run at any time."""
    if line.function is not used.function or used.number >= line.number or any(n.startswith("self.") for n in names):
        return False
    set_by, used_by = _statements(line), _statements(used)
    nested = any(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) for n in _below(line.function))
    shared = any(
        isinstance(statement_of(n, line.function), ast.Global | ast.Nonlocal) for n in own_nodes(line.function.node)
    )
    if not set_by or not used_by or nested or shared or isinstance(line.function.node, ast.Module):
        return False
    around = [{o for o, _ in ancestors(one, line.function) if isinstance(o, _LOOPS)} for one in (set_by[0], used_by[0])]
    return not around[0] & around[1] and not isinstance(used_by[0], _LOOPS)


def _below(function: Function) -> list[ast.AST]:
    return [n for n in ast.walk(function.node) if n is not function.node]
