"""Where the ways through a function part, and what each way communicates."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forkpoint.source.code import Function
from forkpoint.source.communicates import Communication, Reach
from forkpoint.source.syntax import last_word, own_nodes

_GROUP_WORDS = frozenset({"group", "process_group", "pg", "mesh", "dp_group", "tp_group"})
_COMMUNICATORS = ("comm", "communicator", "group", "pg")
_EXITS = frozenset({"exit", "_exit", "abort"})
Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True, slots=True)
class Step:
    """One call that communicates, or comes to something that does."""

    call: ast.Call
    reach: Reach
    key: tuple[str, ...]
    """Equal keys: the same communication, as far as source tells."""
    group: str | None
    """The group it names, where it is not the default one."""


@dataclass(frozen=True, slots=True)
class Arm:
    statements: Sequence[ast.stmt]
    steps: tuple[Step, ...]
    leaves: str | None
    """`return`, `continue`, `break` or `raise`, if its end is never reached."""
    may_leave: frozenset[str]
    """Ways out that stand somewhere in it."""


@dataclass(frozen=True, slots=True)
class Branch:
    function: Function
    node: ast.If | ast.Match | ast.IfExp
    test: ast.expr
    arms: tuple[Arm, ...]
    """Of an `if` the second is the `else`, which may be empty."""
    after: tuple[Step, ...]
    """What follows it in the function."""
    rest_of_loop: tuple[Step, ...]
    """What follows it in the loop around it."""
    whole_loop: tuple[Step, ...]
    """What a further round of that loop does."""


@dataclass(frozen=True, slots=True)
class _Around:
    """What comes after a block."""

    after: tuple[Step, ...] = ()
    rest_of_loop: tuple[Step, ...] = ()
    whole_loop: tuple[Step, ...] = ()


class Ways:
    """Steps and branches of functions, each computed once."""

    def __init__(self, communication: Communication) -> None:
        self._communication = communication
        self._steps: dict[ast.AST, tuple[Step, ...]] = {}

    def steps(self, nodes: Sequence[ast.AST], function: Function) -> tuple[Step, ...]:
        """What these statements may communicate, in the order of source."""
        return tuple(step for node in nodes for step in self._steps_of(node, function))

    def branches(self, function: Function) -> Iterator[Branch]:
        yield from self._in_block(function.body, function, _Around())

    def guards(self, call: ast.Call, function: Function) -> Iterator[ast.expr]:
        """Conditions under which a call stands."""
        pending: list[tuple[ast.AST, tuple[ast.expr, ...]]] = [(s, ()) for s in function.body]
        while pending:
            node, tests = pending.pop()
            if node is call:
                yield from tests
                return
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if isinstance(node, ast.If | ast.IfExp):
                inner = (*tests, node.test)
                body = node.body if isinstance(node.body, list) else [node.body]
                orelse = node.orelse if isinstance(node.orelse, list) else [node.orelse]
                pending += [(n, inner) for n in (*body, *orelse)]
                pending.append((node.test, tests))
            else:
                pending += [(n, tests) for n in ast.iter_child_nodes(node)]

    def loops(self, function: Function) -> Iterator[Loop]:
        for node in own_nodes(function.node):
            if isinstance(node, Loop):
                yield node

    def _steps_of(self, node: ast.AST, function: Function) -> tuple[Step, ...]:
        known = self._steps.get(node)
        if known is None:
            inner = (
                ()
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda)
                else (step for child in ast.iter_child_nodes(node) for step in self._steps_of(child, function))
            )
            found = [*inner]
            if isinstance(node, ast.Call):
                reach = self._communication.reach(node, function)
                if reach is not None:
                    found.append(self._step(node, reach))
            known = self._steps[node] = tuple(found)
        return known

    def _step(self, call: ast.Call, reach: Reach) -> Step:
        if reach.through is None:
            group = group_of(call)
            return Step(call, reach, (reach.api.op, group or ""), group)
        last = self._communication.path(reach)[-1][1]
        return Step(call, reach, (reach.through.module.path, reach.through.name), group_of(last))

    def _in_block(self, block: Sequence[ast.stmt], function: Function, around: _Around) -> Iterator[Branch]:
        if not self.steps(block, function) and not (around.after or around.rest_of_loop or around.whole_loop):
            return
        for place, statement in enumerate(block):
            later = self.steps(block[place + 1 :], function)
            here = _Around(
                (*later, *around.after), (*later, *around.rest_of_loop) if around.whole_loop else (), around.whole_loop
            )
            yield from self._in_statement(statement, function, here)

    def _in_statement(self, node: ast.stmt, function: Function, around: _Around) -> Iterator[Branch]:
        match node:
            case ast.If():
                yield self._branch(node, node.test, [node.body, node.orelse], function, around)
                yield from self._in_block(node.body, function, around)
                yield from self._in_block(node.orelse, function, around)
            case ast.Match():
                yield self._branch(node, node.subject, [*(c.body for c in node.cases), []], function, around)
                for case in node.cases:
                    yield from self._in_block(case.body, function, around)
            case ast.For() | ast.AsyncFor() | ast.While():
                body = self.steps(node.body, function)
                inside = _Around((*body, *around.after), (), body) if body else _Around(around.after, (), ())
                yield from self._in_block(node.body, function, inside)
                yield from self._in_block(node.orelse, function, around)
            case ast.With() | ast.AsyncWith():
                yield from self._in_block(node.body, function, around)
            case ast.Try() | ast.TryStar():
                for block in (node.body, node.orelse, node.finalbody, *(h.body for h in node.handlers)):
                    yield from self._in_block(block, function, around)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return
            case _:
                yield from self._in_expressions(node, function, around)

    def _in_expressions(self, node: ast.stmt, function: Function, around: _Around) -> Iterator[Branch]:
        if self._steps_of(node, function):
            for inner in own_nodes(node):
                if isinstance(inner, ast.IfExp):
                    arms = tuple(
                        Arm((), self._steps_of(a, function), None, frozenset()) for a in (inner.body, inner.orelse)
                    )
                    yield Branch(
                        function, inner, inner.test, arms, around.after, around.rest_of_loop, around.whole_loop
                    )

    def _branch(
        self,
        node: ast.If | ast.Match,
        test: ast.expr,
        blocks: list[list[ast.stmt]],
        function: Function,
        around: _Around,
    ) -> Branch:
        arms = tuple(Arm(b, self.steps(b, function), leaving(b), frozenset(_ways_out(b))) for b in blocks)
        return Branch(function, node, test, arms, around.after, around.rest_of_loop, around.whole_loop)


def skipped(branch: Branch, way: str) -> tuple[Step, ...]:
    """What is not done when the branch is left this way."""
    if way == "return":
        return branch.after
    return branch.rest_of_loop if way == "continue" else (*branch.rest_of_loop, *branch.whole_loop)


def leaving(block: Sequence[ast.stmt]) -> str | None:
    """How a block is left, if control never runs past its end."""
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
        case ast.Expr(value=ast.Call() as call) if last_word(call) in _EXITS:
            return "raise"
        case ast.If() if last.orelse:
            ways = leaving(last.body), leaving(last.orelse)
            return ways[0] if all(ways) else None
        case ast.With() | ast.AsyncWith():
            return leaving(last.body)
        case _:
            return None


def group_of(call: ast.Call) -> str | None:
    """The group a call names, unless it is plainly the default one."""
    for keyword in call.keywords:
        if keyword.arg in _GROUP_WORDS:
            text = ast.unparse(keyword.value)
            return None if text == "None" or text.endswith("WORLD") else text
    # A communicator of its own: `self.comm.broadcast(x)`.
    if isinstance(call.func, ast.Attribute) and last_word(call.func.value).endswith(_COMMUNICATORS):
        return ast.unparse(call.func.value)
    return None


def _ways_out(block: Sequence[ast.stmt]) -> Iterator[str]:
    """Of this block: `break` and `continue` of loops inside it do not leave it."""
    for statement in block:
        match statement:
            case ast.Return():
                yield "return"
            case ast.Continue():
                yield "continue"
            case ast.Break():
                yield "break"
            case ast.For() | ast.AsyncFor() | ast.While():
                yield from (way for way in _ways_out(statement.body) if way == "return")
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case _:
                for name in ("body", "orelse", "finalbody"):
                    yield from _ways_out(getattr(statement, name, []))
                for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
                    yield from _ways_out(part.body)
