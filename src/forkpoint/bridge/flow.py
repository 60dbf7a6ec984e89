"""The ways through one function: its statements as spots, and where control can go from each."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from forkpoint.source.code import Function
from forkpoint.source.syntax import last_word

Decider = ast.If | ast.Match | ast.IfExp | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler
_ENDS = frozenset({"exit", "_exit", "abort"})
_NESTED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Choice:
    """One way out of a spot that another rank may leave otherwise."""

    node: Decider
    test: ast.expr | None
    """None for a handler: whether an exception came decides."""
    block: Sequence[ast.stmt]
    """What stands on this way; empty where the branch is passed by."""


@dataclass(slots=True, eq=False, repr=False)
class Spot:
    """A statement, or the head of one that has a body."""

    function: Function
    node: ast.stmt | ast.ExceptHandler | None
    """None: the end of the function."""
    parts: tuple[ast.AST, ...] = ()
    """What is evaluated here."""
    left_out: frozenset[ast.AST] = frozenset()
    """Parts of a conditional expression that were not chosen."""
    ways: list[tuple[Choice | None, "Spot"]] = field(default_factory=list)
    handlers: tuple["Spot", ...] = ()
    """Where an exception raised here goes on, within the function."""
    is_round: bool = False
    """The step back to a loop's head."""
    raises: bool = False
    quiet: bool = False
    """Under `no_sync`: backward passes do not communicate."""
    quits: bool = False
    """The process ends here."""

    @property
    def first(self) -> int:
        return self.node.lineno if self.node is not None else 0

    @property
    def last(self) -> int:
        """Of what is evaluated here: a body has spots of its own."""
        ends = [getattr(p, "end_lineno", None) or self.first for p in self.parts]
        return max([self.first, *ends])


@dataclass(frozen=True, slots=True)
class _Around:
    """Where jumps lead."""

    head: Spot | None
    after: Spot | None
    handlers: tuple[Spot, ...] = ()
    quiet: bool = False


class Flow:
    """The spots of one function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.spots: list[Spot] = []
        self.exit = Spot(function, None)
        self.entry = self._block(function.body, self.exit, _Around(None, None))

    def at(self, line: int) -> list[Spot]:
        """Spots that hold a line, the narrowest first."""
        found = [s for s in self.spots if not s.is_round and s.first <= line <= s.last]
        return sorted(found, key=lambda s: s.last - s.first)

    def _spot(self, node: ast.stmt | ast.ExceptHandler, parts: Sequence[ast.AST], around: _Around) -> Spot:
        spot = Spot(self.function, node, tuple(parts), handlers=around.handlers, quiet=around.quiet)
        self.spots.append(spot)
        return spot

    def _block(self, block: Sequence[ast.stmt], after: Spot, around: _Around) -> Spot:
        for statement in reversed(block):
            after = self._statement(statement, after, around)
        return after

    def _statement(self, node: ast.stmt, after: Spot, around: _Around) -> Spot:
        match node:
            case ast.If():
                spot = self._spot(node, [node.test], around)
                for block in (node.body, node.orelse):
                    spot.ways.append((Choice(node, node.test, block), self._block(block, after, around)))
                return spot
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(node, after, around)
            case ast.Match():
                return self._match(node, after, around)
            case ast.Try() | ast.TryStar():
                return self._try(node, after, around)
            case ast.With() | ast.AsyncWith():
                return self._with(node, after, around)
            case _:
                return self._simple(node, after, around)

    def _with(self, node: ast.With | ast.AsyncWith, after: Spot, around: _Around) -> Spot:
        """`with no_sync():` keeps what stands in it from communicating; `nullcontext() if last else no_sync()` decides."""
        chosen = next((i.context_expr for i in node.items if isinstance(i.context_expr, ast.IfExp)), None)
        spot = self._spot(node, [chosen.test] if chosen else node.items, around)
        for expr in (chosen.body, chosen.orelse) if chosen else (None,):
            parts = [expr] if expr is not None else [i.context_expr for i in node.items]
            inside = replace(around, quiet=around.quiet or any(last_word(p) == "no_sync" for p in parts))
            choice = Choice(chosen, chosen.test, node.body) if chosen else None
            spot.ways.append((choice, self._block(node.body, after, inside)))
        return spot

    def _simple(self, node: ast.stmt, after: Spot, around: _Around) -> Spot:
        spot = self._spot(node, () if isinstance(node, _NESTED) else (node,), around)
        match node:
            case ast.Return():
                spot.ways.append((None, self.exit))
            case ast.Continue() if around.head is not None:
                spot.ways.append((None, around.head))
            case ast.Break() if around.after is not None:
                spot.ways.append((None, around.after))
            case ast.Raise():
                spot.raises = True
            case ast.Expr(value=ast.Call() as call) if ends_process(call):
                spot.quits = True
            case _:
                spot.ways.append((None, after))
        return self._conditional(spot)

    def _conditional(self, spot: Spot) -> Spot:
        """`a() if test else b()`: two spots behind one that decides."""
        for part in spot.parts:
            for inner in ast.walk(part):
                if isinstance(inner, ast.IfExp) and _has_call(inner.body, inner.orelse):
                    decides = Spot(spot.function, spot.node, (inner.test,), handlers=spot.handlers)
                    self.spots.append(decides)
                    for other in (inner.orelse, inner.body):
                        chosen = replace(spot, left_out=frozenset({other, inner.test}), ways=list(spot.ways))
                        self.spots.append(chosen)
                        decides.ways.append((Choice(inner, inner.test, ()), chosen))
                    self.spots.remove(spot)
                    return decides
        return spot

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, after: Spot, around: _Around) -> Spot:
        head_expr = node.test if isinstance(node, ast.While) else node.iter
        head = self._spot(node, [head_expr], around)
        again = Spot(self.function, node, is_round=True)
        again.ways.append((None, head))
        self.spots.append(again)
        inside = replace(around, head=again, after=after)
        head.ways.append((Choice(node, head_expr, node.body), self._block(node.body, again, inside)))
        if not (isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value):
            head.ways.append((Choice(node, head_expr, node.orelse), self._block(node.orelse, after, around)))
        return head

    def _match(self, node: ast.Match, after: Spot, around: _Around) -> Spot:
        spot = self._spot(node, [node.subject], around)
        for case in node.cases:
            spot.ways.append((Choice(node, node.subject, case.body), self._block(case.body, after, around)))
        spot.ways.append((Choice(node, node.subject, ()), after))
        return spot

    def _try(self, node: ast.Try | ast.TryStar, after: Spot, around: _Around) -> Spot:
        last = self._block(node.finalbody, after, around)
        handlers: list[Spot] = []
        for handler in node.handlers:
            spot = self._spot(handler, (), around)
            spot.ways.append((None, self._block(handler.body, last, around)))
            handlers.append(spot)
        inside = replace(around, handlers=tuple(handlers)) if handlers else around
        return self._block(node.body, self._block(node.orelse, last, around), inside)


def _has_call(*parts: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) for part in parts for n in ast.walk(part))


def ends_process(call: ast.Call) -> bool:
    """`sys.exit()`, `os._exit()`, `os.kill(os.getpid(), ...)`."""
    name = last_word(call.func)
    return name in _ENDS or (name == "kill" and any(last_word(a) == "getpid" for a in call.args))
