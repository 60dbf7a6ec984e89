"""The branches of a function, what each of their arms communicates, and how reports name it."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

from forkpoint.source.code import Function
from forkpoint.source.communicates import Communication, Reach
from forkpoint.source.flow import exits_in
from forkpoint.source.resolve import Resolver
from forkpoint.source.syntax import NestedScope, argument_for, default_of, last_word, own_nodes
from forkpoint.source.value import Reason

# ---------------------------------------------------------------------------------------------------------------------
# The branches of a function, and what each of their arms communicates.

_GROUP_WORDS = frozenset({"group", "process_group", "pg", "mesh", "dp_group", "tp_group"})
_COMMUNICATORS = ("comm", "communicator", "group", "pg")


@dataclass(frozen=True, slots=True)
class CommStep:
    """One call that communicates, directly or in a function that it runs."""

    call: ast.Call
    reach: Reach
    key: tuple[str, ...]
    """Equal for calls that do the same communication, as far as the source shows."""
    group: str | None
    """The group it names; None for the default one."""


@dataclass(frozen=True, slots=True)
class Arm:
    statements: Sequence[ast.stmt]
    steps: tuple[CommStep, ...]
    leaves: str | None
    """`return`, `continue`, `break` or `raise`, if control never reaches its end."""
    may_leave: frozenset[str]
    """Which of `return`, `continue` and `break` occur anywhere in it."""


@dataclass(frozen=True, slots=True)
class Branch:
    function: Function
    node: ast.If | ast.Match | ast.IfExp | ast.BoolOp
    test: ast.expr
    arms: tuple[Arm, ...]
    """The second arm of an `if` is its `else`, which may be empty."""
    after: tuple[CommStep, ...]
    """What follows it in the function."""
    rest_of_loop: tuple[CommStep, ...]
    """What follows it in the loop around it."""
    whole_loop: tuple[CommStep, ...]
    """What one more round of that loop does."""


@dataclass(frozen=True, slots=True)
class CaughtExit:
    """A handler by which a rank that caught something leaves."""

    function: Function
    node: ast.Try | ast.TryStar
    handler: ast.ExceptHandler
    leaves: str
    """`return`, `continue` or `break`."""
    left_out: tuple[CommStep, ...]
    """What it skips and ranks without an exception do."""


@dataclass(frozen=True, slots=True)
class _Around:
    """What comes after a block."""

    after: tuple[CommStep, ...] = ()
    rest_of_loop: tuple[CommStep, ...] = ()
    whole_loop: tuple[CommStep, ...] = ()


class Branches:
    """Steps and branches of functions; steps are computed once."""

    def __init__(self, communication: Communication, resolver: Resolver) -> None:
        self._communication = communication
        self._resolver = resolver
        self._steps: dict[ast.AST, tuple[CommStep, ...]] = {}

    def steps(self, nodes: Sequence[ast.AST], function: Function) -> tuple[CommStep, ...]:
        """What these statements may communicate, in source order."""
        return tuple(step for node in nodes for step in self._steps_of(node, function))

    def doubtful_steps(self, nodes: Sequence[ast.AST], function: Function) -> Iterator[CommStep]:
        """What these statements communicate if an object has one of several classes."""
        for call in (n for node in nodes for n in (node, *own_nodes(node)) if isinstance(n, ast.Call)):
            reach = self._communication.doubtful_reach(call, function)
            if reach is not None:
                yield self._step(call, reach, function)

    def of(self, function: Function) -> Iterator[Branch]:
        """Outer ones first. Functions without communication have none."""
        yield from (b for b in self._in_block(function.body, function, _Around()) if isinstance(b, Branch))

    def caught_exits(self, function: Function) -> Iterator[CaughtExit]:
        yield from (b for b in self._in_block(function.body, function, _Around()) if isinstance(b, CaughtExit))

    def at(self, node: ast.AST, function: Function) -> Branch | None:
        return next((branch for branch in self.of(function) if branch.node is node), None)

    def _steps_of(self, node: ast.AST, function: Function) -> tuple[CommStep, ...]:
        known = self._steps.get(node)
        if known is None:
            inner = (
                ()
                if isinstance(node, NestedScope)
                else (step for child in ast.iter_child_nodes(node) for step in self._steps_of(child, function))
            )
            found = [*inner]
            call = self._communication.call_at(node)
            reach = self._communication.reach(call, function) if call is not None else None
            if call is not None and reach is not None:
                found.append(self._step(call, reach, function))
            known = self._steps[node] = tuple(found)
        return known

    def _step(self, call: ast.Call, reach: Reach, function: Function) -> CommStep:
        if reach.through is None:
            group = self._group(call, function)
            return CommStep(call, reach, (reach.api.op, group or ""), group)
        path = self._communication.path(reach)
        within, last = path[-1]
        group = self._passed_group(self._group(last, within), [(function, call), *path])
        return CommStep(call, reach, (reach.through.module.path, reach.through.name), group)

    def _passed_group(self, group: str | None, path: Sequence[tuple[Function, ast.Call]]) -> str | None:
        """`barrier(group)` in `def wait(group=None)`: the group is what the calls on the way pass, or the default one."""
        for (_, call), (callee, _) in reversed(list(pairwise(path))):
            if group is None or group not in callee.params:
                return group
            given = argument_for(group, call, callee)
            if given is None:
                # `**given` may have it.
                is_hidden = any(k.arg is None for k in call.keywords) or any(
                    isinstance(a, ast.Starred) for a in call.args
                )
                given = None if is_hidden else default_of(group, callee)
                if given is None:
                    return group
            group = _text_of_group(given)
        return group

    def _group(self, call: ast.Call, function: Function) -> str | None:
        """A module called `comm` is not a communicator."""
        is_of_module = not call.keywords and self._resolver.dotted(call.func, function) is not None
        return None if is_of_module else group_of(call)

    def _in_block(
        self, block: Sequence[ast.stmt], function: Function, around: _Around
    ) -> Iterator[Branch | CaughtExit]:
        if not self.steps(block, function) and not (around.after or around.rest_of_loop or around.whole_loop):
            return
        for number, statement in enumerate(block, 1):
            later = self.steps(block[number:], function)
            here = _Around(
                (*later, *around.after), (*later, *around.rest_of_loop) if around.whole_loop else (), around.whole_loop
            )
            yield from self._in_statement(statement, function, here)

    def _in_statement(self, node: ast.stmt, function: Function, around: _Around) -> Iterator[Branch | CaughtExit]:
        match node:
            case ast.If():
                yield from self._in_expressions(node.test, function, around)
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
                yield from self._caught(node, function, around)
                for block in (node.body, node.orelse, node.finalbody, *(h.body for h in node.handlers)):
                    yield from self._in_block(block, function, around)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return
            case _:
                yield from self._in_expressions(node, function, around)

    def _caught(self, node: ast.Try | ast.TryStar, function: Function, around: _Around) -> Iterator[CaughtExit]:
        for handler in node.handlers:
            done = {step.key for step in self.steps(handler.body, function)}
            for way in sorted(set(exits_in(handler.body))):
                rest = (*self.steps(node.orelse, function), *skipped(around, way))
                left_out = tuple(step for step in rest if step.key not in done)
                if left_out:
                    yield CaughtExit(function, node, handler, way, left_out)

    def _in_expressions(self, node: ast.stmt | ast.expr, function: Function, around: _Around) -> Iterator[Branch]:
        """`sync(x) if test else x`, and `test and sync(x)`."""
        if not self._steps_of(node, function):
            return
        for inner in (node, *own_nodes(node)):
            chosen: list[tuple[ast.expr, list[Sequence[ast.expr]]]] = []
            if isinstance(inner, ast.IfExp):
                chosen = [(inner.test, [[inner.body], [inner.orelse]])]
            elif isinstance(inner, ast.BoolOp):
                chosen = [(test, [inner.values[place:], []]) for place, test in enumerate(inner.values[:-1], 1)]
            for test, blocks in chosen:
                arms = tuple(Arm((), self.steps(b, function), None, frozenset()) for b in blocks)
                if isinstance(inner, ast.IfExp | ast.BoolOp):
                    yield Branch(function, inner, test, arms, around.after, around.rest_of_loop, around.whole_loop)

    def _branch(
        self,
        node: ast.If | ast.Match,
        test: ast.expr,
        blocks: list[list[ast.stmt]],
        function: Function,
        around: _Around,
    ) -> Branch:
        arms = tuple(
            Arm(b, self.steps(b, function), self._resolver.exit_of(b, function), frozenset(exits_in(b))) for b in blocks
        )
        return Branch(function, node, test, arms, around.after, around.rest_of_loop, around.whole_loop)


def skipped(branch: Branch | _Around, way: str) -> tuple[CommStep, ...]:
    """What a rank does not do if it leaves the branch by this `return`, `continue` or `break`."""
    if way == "return":
        return branch.after
    return branch.rest_of_loop if way == "continue" else (*branch.rest_of_loop, *branch.whole_loop)


def group_of(call: ast.Call) -> str | None:
    """The group that a call names, unless it is the default one."""
    for keyword in call.keywords:
        if keyword.arg in _GROUP_WORDS:
            return _text_of_group(keyword.value)
    # A communicator object: `self.comm.broadcast(x)`.
    if isinstance(call.func, ast.Attribute) and last_word(call.func.value).endswith(_COMMUNICATORS):
        return ast.unparse(call.func.value)
    return None


def _text_of_group(group: ast.expr) -> str | None:
    text = ast.unparse(group)
    return None if text == "None" or text.endswith("WORLD") else text


# ---------------------------------------------------------------------------------------------------------------------
# How reports name a communication call and the reason why a value differs.

_NAMES = {"backward": "the backward pass", "forward": "the wrapped model's forward pass"}


def name_step(step: CommStep) -> str:
    """`all_reduce`, or `log_progress(), which leads to all_reduce`."""
    op = _NAMES.get(step.reach.api.op, step.reach.api.op)
    return op if step.reach.through is None else f"{step.reach.through.short}(), which leads to {op}"


def tell_reason(reason: Reason) -> str:
    return f"`{reason.expression}` ({PurePath(reason.file).name}:{reason.line}): {reason.text}"
