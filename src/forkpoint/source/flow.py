"""The control-flow graph of one function: its statements as points, and where control can go from each.

Also what syntax alone shows about a block: how control leaves it.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from forkpoint.source.code import Function
from forkpoint.source.syntax import Decider, Loop, NestedScope, last_word, test_of

_PROCESS_EXITS = frozenset({"exit", "_exit", "abort"})


@dataclass(frozen=True, slots=True)
class Turn:
    """The outcome of a decision that leads from one point to the next; another rank may decide differently."""

    node: Decider
    test: ast.expr | None
    """None for a handler, where the exception decides."""
    block: Sequence[ast.stmt]
    """The statements that this outcome runs; empty if it skips the branch."""


@dataclass(slots=True, eq=False, repr=False)
class Point:
    """A simple statement, or the head of a compound one."""

    function: Function
    node: ast.stmt | ast.ExceptHandler | None
    """None at the end of the function."""
    parts: tuple[ast.AST, ...] = ()
    """What is evaluated here."""
    left_out: frozenset[ast.AST] = frozenset()
    """Parts of a conditional expression that are not evaluated on this path."""
    successors: list[tuple[Turn | None, "Point"]] = field(default_factory=list)
    handlers: tuple["Point", ...] = ()
    """Where control continues if an exception is raised here, within the function."""
    is_round: bool = False
    """The jump back to a loop's head."""
    raises: bool = False
    in_no_sync: bool = False
    """Backward passes do not communicate here."""
    ends_process: bool = False

    @property
    def first(self) -> int:
        return self.node.lineno if self.node is not None else 0

    @property
    def last(self) -> int:
        """The last line of what is evaluated here; the statements of a body are points of their own."""
        ends = [getattr(p, "end_lineno", None) or self.first for p in self.parts]
        return max([self.first, *ends])

    @property
    def can_raise(self) -> bool:
        """Calls and subscripts can."""
        return self.raises or any(isinstance(n, ast.Call | ast.Subscript) for p in self.parts for n in ast.walk(p))


@dataclass(frozen=True, slots=True)
class _Targets:
    """Where jumps lead."""

    head: Point | None
    after: Point | None
    handlers: tuple[Point, ...] = ()
    in_no_sync: bool = False


class ControlFlow:
    """Blocks are built from their end, so that each point knows what follows it."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.points: list[Point] = []
        self.exit = Point(function, None)
        self.entry = self._block(function.body, self.exit, _Targets(None, None))

    def at(self, line: int) -> list[Point]:
        """Points whose lines include this one, shortest first."""
        found = [p for p in self.points if not p.is_round and p.first <= line <= p.last]
        return sorted(found, key=lambda p: p.last - p.first)

    def _add(self, node: ast.stmt | ast.ExceptHandler, parts: Sequence[ast.AST], jumps: _Targets) -> Point:
        point = Point(self.function, node, tuple(parts), handlers=jumps.handlers, in_no_sync=jumps.in_no_sync)
        self.points.append(point)
        return point

    def _block(self, block: Sequence[ast.stmt], after: Point, jumps: _Targets) -> Point:
        for statement in reversed(block):
            after = self._statement(statement, after, jumps)
        return after

    def _statement(self, node: ast.stmt, after: Point, jumps: _Targets) -> Point:
        match node:
            case ast.If():
                point = self._add(node, [node.test], jumps)
                for block in (node.body, node.orelse):
                    point.successors.append((Turn(node, node.test, block), self._block(block, after, jumps)))
                return point
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(node, after, jumps)
            case ast.Match():
                return self._match(node, after, jumps)
            case ast.Try() | ast.TryStar():
                return self._try(node, after, jumps)
            case ast.With() | ast.AsyncWith():
                return self._with(node, after, jumps)
            case _:
                return self._simple(node, after, jumps)

    def _with(self, node: ast.With | ast.AsyncWith, after: Point, jumps: _Targets) -> Point:
        """Backward passes in `with no_sync():` do not communicate; `nullcontext() if last else no_sync()` is a decision."""
        chosen = next((i.context_expr for i in node.items if isinstance(i.context_expr, ast.IfExp)), None)
        point = self._add(node, [chosen.test] if chosen else node.items, jumps)
        for expr in (chosen.body, chosen.orelse) if chosen else (None,):
            parts = [expr] if expr is not None else [i.context_expr for i in node.items]
            inside = replace(jumps, in_no_sync=jumps.in_no_sync or any(last_word(p) == "no_sync" for p in parts))
            turn = Turn(chosen, chosen.test, node.body) if chosen else None
            point.successors.append((turn, self._block(node.body, after, inside)))
        return point

    def _simple(self, node: ast.stmt, after: Point, jumps: _Targets) -> Point:
        point = self._add(node, () if isinstance(node, NestedScope) else (node,), jumps)
        match node:
            case ast.Return():
                point.successors.append((None, self.exit))
            case ast.Continue() if jumps.head is not None:
                point.successors.append((None, jumps.head))
            case ast.Break() if jumps.after is not None:
                point.successors.append((None, jumps.after))
            case ast.Raise():
                point.raises = True
            case ast.Expr(value=ast.Call() as call) if ends_process(call):
                point.ends_process = True
            case _:
                point.successors.append((None, after))
        return self._conditional(point)

    def _conditional(self, point: Point) -> Point:
        """`a() if test else b()`: one point for the test, and one for each outcome."""
        for part in point.parts:
            for inner in ast.walk(part):
                if isinstance(inner, ast.IfExp) and _has_call(inner.body, inner.orelse):
                    decides = Point(point.function, point.node, (inner.test,), handlers=point.handlers)
                    self.points.append(decides)
                    for other in (inner.orelse, inner.body):
                        chosen = replace(
                            point, left_out=frozenset({other, inner.test}), successors=list(point.successors)
                        )
                        self.points.append(chosen)
                        decides.successors.append((Turn(inner, inner.test, ()), chosen))
                    self.points.remove(point)
                    return decides
        return point

    def _loop(self, node: Loop, after: Point, jumps: _Targets) -> Point:
        head_expr = test_of(node)
        head = self._add(node, [head_expr], jumps)
        again = Point(self.function, node, is_round=True)
        again.successors.append((None, head))
        self.points.append(again)
        inside = replace(jumps, head=again, after=after)
        head.successors.append((Turn(node, head_expr, node.body), self._block(node.body, again, inside)))
        if not (isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value):
            head.successors.append((Turn(node, head_expr, node.orelse), self._block(node.orelse, after, jumps)))
        return head

    def _match(self, node: ast.Match, after: Point, jumps: _Targets) -> Point:
        point = self._add(node, [node.subject], jumps)
        for case in node.cases:
            point.successors.append((Turn(node, node.subject, case.body), self._block(case.body, after, jumps)))
        point.successors.append((Turn(node, node.subject, ()), after))
        return point

    def _try(self, node: ast.Try | ast.TryStar, after: Point, jumps: _Targets) -> Point:
        last = self._block(node.finalbody, after, jumps)
        handlers: list[Point] = []
        for handler in node.handlers:
            point = self._add(handler, (), jumps)
            point.successors.append((None, self._block(handler.body, last, jumps)))
            handlers.append(point)
        inside = replace(jumps, handlers=tuple(handlers)) if handlers else jumps
        return self._block(node.body, self._block(node.orelse, last, jumps), inside)


def _has_call(*parts: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) for part in parts for n in ast.walk(part))


def ends_process(call: ast.Call) -> bool:
    """`sys.exit()`, `os._exit()`, `os.kill(os.getpid(), ...)`."""
    name = last_word(call.func)
    return name in _PROCESS_EXITS or (name == "kill" and any(last_word(a) == "getpid" for a in call.args))


def exit_of(block: Sequence[ast.stmt], never_returns: Callable[[ast.Call], bool] = ends_process) -> str | None:
    """`return`, `continue`, `break` or `raise`, if control never runs past the end of the block."""
    if not block:
        return None
    last = block[-1]
    match last:
        case ast.Return():
            return "return"
        case ast.Continue():
            return "continue"
        case ast.Break():
            return "break"
        case ast.Raise():
            return "raise"
        case ast.Expr(value=ast.Call() as call) if never_returns(call):
            return "raise"
        case ast.If() if last.orelse:
            exits = exit_of(last.body, never_returns), exit_of(last.orelse, never_returns)
            return exits[0] if all(exits) else None
        case ast.With() | ast.AsyncWith():
            return exit_of(last.body, never_returns)
        case _:
            return None


def exits_in(block: Sequence[ast.stmt]) -> Iterator[str]:
    """`return`, `continue` and `break` anywhere in the block, without those that only leave a loop inside it."""
    for statement in block:
        match statement:
            case ast.Return():
                yield "return"
            case ast.Continue():
                yield "continue"
            case ast.Break():
                yield "break"
            case ast.For() | ast.AsyncFor() | ast.While():
                yield from (way for way in exits_in(statement.body) if way == "return")
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case _:
                for name in ("body", "orelse", "finalbody"):
                    yield from exits_in(getattr(statement, name, []))
                for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
                    yield from exits_in(part.body)
