"""Claims about values: a condition can differ by rank, and why; it is the same on all ranks; a value that one line sets is used on another."""

import ast
from typing import Annotated, Literal

from pydantic import Field

from forkpoint.agent.case import Claim, ClaimCheck, ClaimStatus
from forkpoint.agent.claims.guards import Line, deciding_at, find_line, whole_decisions
from forkpoint.brief.case import Case, fact, named, number
from forkpoint.source.apis import Origin
from forkpoint.source.branches import tell_reason
from forkpoint.source.bridge.why import how_caught, how_different
from forkpoint.source.code import Function
from forkpoint.source.syntax import DecidingNode, ancestors, assignments, own_nodes, statement_of, tests_of
from forkpoint.source.value import NO_REASONS, Reasons

# ---------------------------------------------------------------------------------------------------------------------
# A condition can differ by rank, because of where its value comes from.
#
# | what the source shows of the value | is |
# |---|---|
# | it comes from that origin; for a `for` loop, the number or the order of its rounds does | supported |
# | it is certainly the same on all ranks (see `is_surely_equal`) | contradicted |
# | nothing, or another origin; no source, no such line, no decision on it | unverifiable |
#
# A handler's origin is `exception`, or that of the condition under which what it catches is raised.


class CanDiffer(Claim):
    """Why a condition, or how often a loop runs, can differ by rank."""

    kind: Literal["can-differ"]
    file: str
    line: int
    """Of the condition, the loop or the handler."""
    because: Annotated[Origin, Field(strict=False)]

    def sentence(self) -> str:
        return f"what {named(self.file)} line {number(self.line)} decides can differ by rank ({self.because.value})"

    def check(self, case: Case) -> ClaimCheck:
        found = _decisions(self.file, self.line, case)
        if isinstance(found, ClaimCheck):
            return found
        line, nodes = found
        reasons = _all_reasons(nodes, line, case)
        fitting = [r for r in reasons if r.origin is self.because]
        told = sorted(fitting or reasons, key=lambda r: r.key)
        facts = tuple(fact(case, str(line), tell_reason(r)) for r in told)
        if fitting:
            return ClaimCheck(ClaimStatus.SUPPORTED, f"the source shows it: {facts[0].says}", facts)
        if reasons:
            origins = ", ".join(sorted({r.origin.value for r in reasons}))
            return ClaimCheck(ClaimStatus.UNVERIFIABLE, f"the source does not show that, but: {origins}", facts)
        if all(is_surely_equal(node, line) for node in nodes):
            return ClaimCheck(ClaimStatus.CONTRADICTED, "the source shows that it is the same on all ranks")
        return ClaimCheck.unverifiable("the source does not show why it could differ, nor that it cannot")


def _decisions(file: str, number_: int, case: Case) -> tuple[Line, list[DecidingNode]] | ClaimCheck:
    line = find_line(file, number_, case)
    if isinstance(line, ClaimCheck):
        return line
    nodes = whole_decisions(deciding_at(line))
    return (line, nodes) if nodes else ClaimCheck.unverifiable(f"nothing is decided on {case.clean(str(line))}")


def _all_reasons(nodes: list[DecidingNode], line: Line, case: Case) -> Reasons:
    """Includes those that the bridge found at a fork."""
    told_by_forks = [fork.reasons for fork in case.forks if fork.node in nodes]
    return NO_REASONS.union(*told_by_forks, *(_reasons(node, line) for node in nodes))


def _reasons(node: DecidingNode, line: Line) -> Reasons:
    if isinstance(node, ast.ExceptHandler):
        return how_caught(node, line.function, line.analysis)[0]
    values = [line.analysis.differences.test(test, line.function) for test in tests_of(node)]
    if isinstance(node, ast.For | ast.AsyncFor):
        # Elements may differ by rank; only their number and order change how often the loop runs.
        rounds, _ = how_different(node, node.iter, line.function, line.analysis)
        return rounds.union(*(value.extent for value in values))
    return NO_REASONS.union(*(value.reasons for value in values))


# ---------------------------------------------------------------------------------------------------------------------
# The value that a line decides by is the same on all ranks.
#
# | what the source shows | is |
# |---|---|
# | it is certainly the same on all ranks | supported |
# | it compares the rank with a constant that is a rank of this job | contradicted |
# | anything else: that a value can differ does not show that it did | unverifiable |


class SameValue(Claim):
    """What a line decides by is the same on all ranks."""

    kind: Literal["same-value"]
    file: str
    line: int
    """Of the condition or the loop."""

    def sentence(self) -> str:
        return f"what {named(self.file)} line {number(self.line)} decides by is the same on all ranks"

    def check(self, case: Case) -> ClaimCheck:
        found = _decisions(self.file, self.line, case)
        if isinstance(found, ClaimCheck):
            return found
        line, nodes = found
        facts = (fact(case, str(line), line.text),)
        if all(is_surely_equal(node, line) for node in nodes):
            return ClaimCheck(
                ClaimStatus.SUPPORTED, "the source shows it: a constant, or a value that a collective made equal", facts
            )
        world = len(case.incident.timeline.world)
        if any(_is_of_one_rank(test, line, world) for node in nodes for test in tests_of(node)):
            return ClaimCheck(ClaimStatus.CONTRADICTED, "it compares the rank, which differs on each", facts)
        reasons = sorted(_all_reasons(nodes, line, case), key=lambda r: r.key)
        if reasons:
            told = tuple(fact(case, str(line), tell_reason(r)) for r in reasons)
            return ClaimCheck(ClaimStatus.UNVERIFIABLE, "it can differ, which does not show that it did", told)
        return ClaimCheck.unverifiable("the source shows neither that it is equal nor that it differs")


def _is_of_one_rank(test: ast.expr, line: Line, world: int) -> bool:
    """`rank == 0`. Not values computed from the rank (`rank // 8`, `rank >= 0`): they may be equal on all ranks."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            return _is_of_one_rank(test.operand, line, world)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant(value=int(asked))]):
            return 0 <= asked < world and world > 1 and _is_rank_call(left, line)
        case _:
            return False


def _is_rank_call(expr: ast.expr, line: Line) -> bool:
    if isinstance(expr, ast.Name):
        values = _assigned(expr.id, line.function)
        return values is not None and len(values) == 1 and _is_rank_call(values[0], line)
    named_so = isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr == "get_rank"
    if not named_so or not isinstance(expr, ast.Call) or expr.args or expr.keywords:  # of a group: counted inside it
        return False
    return line.analysis.resolver.dotted(expr.func, line.function) == "torch.distributed.get_rank"


# ---------------------------------------------------------------------------------------------------------------------
# Certainly equal on all ranks: made of constants, or of values that a collective over all ranks made equal.


def is_surely_equal(node: DecidingNode, line: Line) -> bool:
    tests = tests_of(node)
    return bool(tests) and all(_is_constant(test, line) or _is_made_equal(test, line) for test in tests)


def _is_constant(test: ast.expr, line: Line) -> bool:
    """Constants, `range` and `len` of them, and names that the function sets once, to such a value."""
    if isinstance(test, ast.Call):
        plain = isinstance(test.func, ast.Name) and test.func.id in {"range", "len"} and not test.keywords
        return plain and all(_is_constant(arg, line) for arg in test.args)
    if isinstance(test, ast.Name):
        values = _assigned(test.id, line.function)
        return values is not None and len(values) == 1 and _is_constant(values[0], line)
    inner = [child for child in ast.iter_child_nodes(test) if isinstance(child, ast.expr)]
    known = ast.Constant | ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp | ast.Tuple | ast.List
    return isinstance(test, known) and all(_is_constant(child, line) for child in inner)


def _assigned(name: str, function: Function) -> list[ast.expr] | None:
    """All values assigned to a local name; None if it may also be set in a way not seen here."""
    stores = [n for n in ast.walk(function.node) if isinstance(n, ast.Name) and n.id == name]
    plain = [
        n
        for n in ast.walk(function.node)
        if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in n.targets)
    ]
    elsewhere = any(isinstance(n, ast.Global | ast.Nonlocal) and name in n.names for n in ast.walk(function.node))
    set_in_all = sum(not isinstance(n.ctx, ast.Load) for n in stores)
    if elsewhere or name in function.params or set_in_all != len(plain) or isinstance(function.node, ast.Module):
        return None
    return [n.value for n in plain]


def _is_made_equal(test: ast.expr, line: Line) -> bool:
    """A collective made it equal on all ranks. Not `x is None`: a collective makes contents equal, not whether a value exists.
    Not if an exception can skip the collective, it may be unfinished (`async_op`), or it may cover only some of the ranks.
    """
    if any(isinstance(n, ast.Is | ast.IsNot | ast.Try | ast.TryStar) for n in ast.walk(test)):
        return False
    value = line.analysis.differences.test(test, line.function)
    if (
        not value.equal
        or not value.made
        or any(isinstance(n, ast.Try | ast.TryStar) for n in own_nodes(line.function.node))
    ):
        return False
    return not any(_is_partial(call, f, line) for f in line.analysis.communicating() for call in f.calls)


_OF_A_PART = frozenset({"group", "process_group", "pg", "async_op", "mesh", "device_mesh"})
_WITH_GROUP = 3
"""With this many positional arguments, one may be the group."""


def _is_partial(call: ast.Call, function: Function, line: Line) -> bool:
    told = any(k.arg is None or k.arg in _OF_A_PART for k in call.keywords) or len(call.args) >= _WITH_GROUP
    return told and line.analysis.communication.api(call, function) is not None


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
