"""What the source does with data: the numbers a value is compared with, whether it can differ by rank, and where data is filtered."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from forkpoint.rehearse.model import CodeSite
from forkpoint.source import Program, read_program
from forkpoint.source.analysis import Analysis, analyse
from forkpoint.source.apis import is_rank_word
from forkpoint.source.code import Function, spelled
from forkpoint.source.syntax import last_word

_SPELLED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", ">"),
    ast.LtE: ("<=", ">="),
    ast.Gt: (">", "<"),
    ast.GtE: (">=", "<="),
    ast.Eq: ("==", "=="),
    ast.NotEq: ("!=", "!="),
}
"""And with the sides exchanged."""
_SETS = frozenset({"set", "frozenset", "hash"})
_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Threshold:
    """`value <operator> bound` in the source."""

    operator: str
    bound: str
    """As written: numbers, names and arithmetic; evaluated in the frame that reads the value."""
    line: int


class Decisions:
    """Answers questions about one program, which is read on first use."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = tuple(roots)

    @cached_property
    def _program(self) -> Program:
        return read_program(self._roots)

    @cached_property
    def _analysis(self) -> Analysis:
        return analyse(self._program)

    def thresholds(self, site: CodeSite) -> tuple[Threshold, ...]:
        """Bounds with which a value read at this line is compared, in the same function."""
        function = self._at(site)
        if function is None:
            return ()
        values = _values_read(function, site.line)
        return tuple(dict.fromkeys(_comparisons(function, values, site.line)))

    def is_local(self, site: CodeSite) -> bool:
        """A decision at this line can differ by rank, as far as the source shows."""
        function = self._at(site)
        if function is None:
            return False
        tests = [node for node in _tests(function) if node.lineno <= site.line <= (node.end_lineno or node.lineno)]
        differences = self._analysis.differences
        return any(differences.test(test, function).content for test in tests)

    def filters_alone(self, site: CodeSite) -> bool:
        """A filter at this line decides by its data alone: not by the rank, and without asking other ranks."""
        function = self._at(site)
        if function is None:
            return False
        here = [tests for line, tests in find_filters(_own_statements(function)) if line == site.line]
        calls = [n for tests in here for test in tests for n in ast.walk(test) if isinstance(n, ast.Call)]
        reach = self._analysis.communication.reach
        return bool(here) and not any(map(asks_for_rank, here)) and not any(reach(call, function) for call in calls)

    def has_sets(self) -> bool:
        """The source makes a set or asks for a hash, so another hash seed can change what it does."""
        return any(map(_hashes, (node for module in self._program.modules.values() for node in ast.walk(module.tree))))

    def _at(self, site: CodeSite) -> Function | None:
        module = self._program.module_at(site.file)
        return module.function_at(site.line) if module else None


def _hashes(node: ast.AST) -> bool:
    """A set, also of the keys of two dictionaries (`a.keys() - b.keys()`)."""
    if isinstance(node, ast.Call):
        return last_word(node.func) in _SETS
    keys = isinstance(node, ast.BinOp) and any(
        isinstance(n, ast.Call) and last_word(n.func) == "keys" for n in (node.left, node.right)
    )
    return keys or isinstance(node, ast.Set | ast.SetComp)


def _own_statements(function: Function) -> Iterator[ast.AST]:
    for statement in function.body:
        yield from ast.walk(statement)


def _values_read(function: Function, line: int) -> set[str]:
    """Names of the value read at this line (`loss_value = loss.item()`), and of values computed from it."""
    names: set[str] = set()
    for node in function.own.assignments:
        value = getattr(node, "value", None)
        if value is None or not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.AugAssign):
            continue
        here = node.lineno <= line <= (node.end_lineno or node.lineno)
        computed = any(spelled(part) in names for part in ast.walk(value) if isinstance(part, ast.Name | ast.Attribute))
        if here or computed:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {name for target in targets for name in _names_in(target)}
    return names


def _names_in(target: ast.expr) -> Iterator[str]:
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    for part in parts:
        name = spelled(part)
        if name:
            yield name


def _comparisons(function: Function, values: set[str], line: int) -> Iterator[Threshold]:
    for node in _own_statements(function):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SPELLED:
            left, right, spelling = node.left, node.comparators[0], _SPELLED[type(node.ops[0])]
            if ast.dump(left) == ast.dump(right):  # asks for NaN, which is a perturbation of its own
                continue
            if _is_value(left, values, line) and (bound := _bound(right)):
                yield Threshold(spelling[0], bound, node.lineno)
            elif _is_value(right, values, line) and (bound := _bound(left)):
                yield Threshold(spelling[1], bound, node.lineno)


def _is_value(side: ast.expr, values: set[str], line: int) -> bool:
    """A name of the value, or the read itself."""
    if spelled(side) in values:
        return True
    is_read = isinstance(side, ast.Call) and side.lineno <= line <= (side.end_lineno or side.lineno)
    return is_read and bool(_read_name(side))


def _read_name(call: ast.expr) -> str:
    if not isinstance(call, ast.Call):
        return ""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("item", "tolist"):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) and call.func.id in ("float", "int", "bool") else ""


def _bound(node: ast.expr) -> str:
    """As written, if it consists of numbers, names and simple arithmetic; else ""."""
    match node:
        case ast.Constant(value=int() | float()):
            return ast.unparse(node)
        case ast.UnaryOp(op=ast.USub()):
            return ast.unparse(node) if _bound(node.operand) else ""
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
            return ast.unparse(node) if _bound(node.left) and _bound(node.right) else ""
        case _:
            return spelled(node) or ""


def _tests(function: Function) -> Iterator[ast.expr]:
    for node in _own_statements(function):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield node.test


# ---------------------------------------------------------------------------------------------------------------------
# Filters: list comprehensions with `if`, loops that begin with `if ...: continue`, generators that yield what passes a test.


def tests_of_list(node: ast.ListComp) -> list[ast.expr]:
    return [test for generator in node.generators for test in generator.ifs if not generator.is_async]


def tests_of_loop(loop: ast.For) -> list[ast.stmt]:
    """The statements at the start of the body that decide whether to `continue`. Empty: there are none."""
    for number, statement in enumerate(loop.body):
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Continue) and not statement.orelse:
            return loop.body[: number + 1]
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            break
    return []


def is_generator(function: ast.FunctionDef) -> bool:
    """It yields, and not a function inside it."""
    inner = {
        part
        for node in ast.walk(function)
        if node is not function and isinstance(node, _SCOPES)
        for part in ast.walk(node)
    }
    return any(isinstance(part, ast.Yield | ast.YieldFrom) and part not in inner for part in ast.walk(function))


def yields_by_data(function: ast.FunctionDef) -> bool:
    """A test inside a loop decides how often it yields, and that test does not ask for the rank."""
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
    left = [tests for loop in loops if isinstance(loop, ast.For) and _yields(loop) and (tests := tests_of_loop(loop))]
    branches = [node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.If)]
    taken = [[branch.test] for branch in branches if any(map(_yields, branch.body))]
    return any(not asks_for_rank(tests) for tests in (*left, *taken))


def _yields(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node))


def find_filters(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, list[ast.AST]]]:
    """For each filter, the line under which it is reported and its conditions."""
    for node in nodes:
        if isinstance(node, ast.ListComp) and (tests := tests_of_list(node)):
            yield node.lineno, list(tests)
        elif isinstance(node, ast.For) and (rounds := tests_of_loop(node)):
            yield node.iter.lineno, list(rounds)


def asks_for_rank(tests: Iterable[ast.AST]) -> bool:
    """The condition mentions a rank: it selects a rank's share of the data and does not drop bad samples."""
    parts = [part for test in tests for part in ast.walk(test)]
    return any(isinstance(part, ast.Name | ast.Attribute) and is_rank_word(last_word(part)) for part in parts)
