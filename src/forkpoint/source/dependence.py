"""Control dependence: does a decision determine whether a call is reached?

It does if the call can be reached between the decision and the first point that all paths from it pass.
"""

import ast
from collections.abc import Iterable, Iterator

from forkpoint.source.code import Function
from forkpoint.source.flow import ControlFlow, Point, exit_of
from forkpoint.source.syntax import DecidingNode, ancestors

_Node = Point | ast.AST
"""A point; the call in question, for all points that make it; or a loop's iterable, which is evaluated once."""
_TRIES = ast.Try | ast.TryStar


def decides(node: DecidingNode, call: ast.Call, function: Function) -> bool | None:
    """None if the call is not made where it is written, or if the source does not show how it is reached."""
    above = [outer for outer, _ in ancestors(call, function)]
    if any(isinstance(outer, ast.Lambda) for outer in above):
        return None
    if isinstance(node, ast.IfExp | ast.BoolOp | ast.comprehension):
        return _in_part(node, call, above)
    if _is_in_finally(node, call, function):
        return False
    paths = _PathsToCall(function, call, above)
    starts = paths.starts(node)
    return any(paths.can_decide(after) for after in starts) if starts and paths.has_call else None


def _in_part(node: ast.IfExp | ast.BoolOp | ast.comprehension, call: ast.Call, above: list[ast.AST]) -> bool:
    """The call is in a part of the expression that is not evaluated exactly once."""
    around = [call, *above]
    match node:
        case ast.IfExp():
            return node.body in around or node.orelse in around
        case ast.BoolOp():
            return any(value in around for value in node.values[1:])
        case ast.comprehension():
            loops = next((g for o in above if node in (g := getattr(o, "generators", []))), [])
            first_iterable = bool(loops) and loops[0] is node and node.iter in around
            return bool(loops) and not first_iterable


def _is_in_finally(node: ast.AST, call: ast.Call, function: Function) -> bool:
    """The call is in a `finally`, and the decision in the `try` before it: every path reaches the call."""
    around = [outer for outer, _ in ancestors(node, function)]
    for outer, inner in ancestors(call, function):
        if isinstance(outer, _TRIES) and inner in outer.finalbody and outer in around:
            return not any(part is node or part in around for part in outer.finalbody)
    return False


class _PathsToCall:
    """The control flow of a function, with all points that make one call merged into one node."""

    def __init__(self, function: Function, call: ast.Call, above: list[ast.AST]) -> None:
        self._call = call
        self._flow = ControlFlow(function)
        self._raising = {outer for outer in above if isinstance(outer, ast.ExceptHandler)}
        self._edges: dict[_Node, list[_Node]] = {self._flow.exit: []}
        for point in self._flow.points:
            self._edges.setdefault(self._node(point), []).extend(self._after(point))
            if _iterable(point) is not None:
                self._edges[self._before_rounds(point)] = [self._node(point)]
        self._end_loops()

    @property
    def has_call(self) -> bool:
        return self._call in self._edges

    def starts(self, node: DecidingNode) -> list[set[_Node]]:
        """What can come next after the decision, for each copy of it in the graph."""
        points = [s for s in self._flow.points if s.node is node and not s.is_round]
        match node:
            case ast.ExceptHandler():
                return [self._caught(node, points)]
            case ast.Assert():
                return [{*self._without_exception(s), *(s.handlers or (self._flow.exit,))} for s in points]
            case _:
                return [
                    set(self._without_exception(s))
                    for s in points
                    if any(c and c.node is node for c, _ in s.successors)
                ]

    def can_decide(self, starts: set[_Node]) -> bool:
        """The call can be reached before the paths have met."""
        meeting = self._meeting(starts)
        return self._call in self._reached(starts, without=meeting)

    def _caught(self, handler: ast.ExceptHandler, points: list[Point]) -> set[_Node]:
        """Into the handler, or on from what could have raised. A handler that always re-raises decides nothing."""
        inside = any(self._call is n for n in ast.walk(handler))
        if exit_of(handler.body) == "raise" and not inside:
            return set()
        raising = [s for s in self._flow.points if any(h in points for h in s.handlers) and s.can_raise]
        return {*points, *(after for s in raising for after in self._after(s))}

    def _without_exception(self, point: Point) -> Iterator[_Node]:
        for _, after in point.successors:
            again = point.is_round and after.node is point.node
            yield self._node(after) if again or _iterable(after) is None else self._before_rounds(after)

    def _after(self, point: Point) -> list[_Node]:
        """Exceptions count if they are raised explicitly, or if the call is in the handler that catches them."""
        found = list(self._without_exception(point))
        if point.raises:
            found += point.handlers
        elif point.can_raise:
            found += [h for h in point.handlers if h.node in self._raising]
        return found or [self._flow.exit]

    def _node(self, point: Point) -> _Node:
        parts = () if _iterable(point) is not None else point.parts
        return self._call if any(self._makes(part, point) for part in parts) else point

    def _before_rounds(self, head: Point) -> _Node:
        iterable = _iterable(head)
        assert iterable is not None  # callers check
        return self._call if self._makes(iterable, head) else iterable

    def _makes(self, part: ast.AST, point: Point) -> bool:
        if part in point.left_out:
            return False
        return part is self._call or any(self._makes(child, point) for child in ast.iter_child_nodes(part))

    def _end_loops(self) -> None:
        """A loop without an exit is assumed to end at some time."""
        back: dict[_Node, list[_Node]] = {}
        for node, after in self._edges.items():
            for other in after:
                back.setdefault(other, []).append(node)
        ending: set[_Node] = {self._flow.exit}
        pending: list[_Node] = [self._flow.exit]
        while pending:
            fresh = [n for n in back.get(pending.pop(), ()) if n not in ending]
            ending.update(fresh)
            pending += fresh
        for node in self._edges:
            if node not in ending and isinstance(node, Point) and node.is_round:
                self._edges[node].append(self._flow.exit)

    def _meeting(self, starts: set[_Node]) -> _Node:
        """The first node on all paths from `starts`, at the latest the exit. It is on every path, so it is looked for on one."""
        for node in reversed(list(self._shortest_path(starts))):
            if self._flow.exit not in self._reached(starts, without=node):
                return node
        return self._flow.exit

    def _shortest_path(self, starts: set[_Node]) -> Iterator[_Node]:
        """Its nodes, last one first."""
        before: dict[_Node, _Node | None] = dict.fromkeys(starts)
        pending = list(starts)
        while pending and self._flow.exit not in before:
            node = pending.pop(0)
            for after in self._edges.get(node, ()):
                if after not in before:
                    before[after] = node
                    pending.append(after)
        at: _Node | None = self._flow.exit if self._flow.exit in before else None
        while at is not None:
            yield at
            at = before[at]

    def _reached(self, starts: Iterable[_Node], without: _Node) -> set[_Node]:
        seen = {n for n in starts if n is not without}
        pending = list(seen)
        while pending:
            fresh = [n for n in self._edges.get(pending.pop(), ()) if n not in seen and n is not without]
            seen.update(fresh)
            pending += fresh
        return seen


def _iterable(point: Point) -> ast.expr | None:
    head = isinstance(point.node, ast.For | ast.AsyncFor) and not point.is_round
    return point.node.iter if head and isinstance(point.node, ast.For | ast.AsyncFor) else None
