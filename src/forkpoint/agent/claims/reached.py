"""Whether a decision has a say in what is reached: between it and the place at which all its ways have met again."""

import ast
from collections.abc import Iterable, Iterator

from forkpoint.agent.claims.decisions import Deciding
from forkpoint.bridge.flow import Flow, Spot
from forkpoint.remedies.place import ancestors
from forkpoint.source.branches import leaving
from forkpoint.source.code import Function

_Node = Spot | ast.AST
"""A spot; the one call, for all spots that make it; or a loop's iterable, which is evaluated once, before its rounds."""
_TRIES = ast.Try | ast.TryStar


def decides(node: Deciding, call: ast.Call, function: Function) -> bool | None:
    """None: the call is not made where it stands, or source does not show from where it is come to."""
    above = [outer for outer, _ in ancestors(call, function)]
    if any(isinstance(outer, ast.Lambda) for outer in above):
        return None
    if isinstance(node, ast.IfExp | ast.BoolOp | ast.comprehension):
        return _in_part(node, call, above)
    if _runs_at_last(node, call, function):
        return False
    ways = _Ways(function, call, above)
    starts = ways.starts(node)
    return any(ways.hang_on(after) for after in starts) if starts and ways.has_call else None


def _in_part(node: ast.IfExp | ast.BoolOp | ast.comprehension, call: ast.Call, above: list[ast.AST]) -> bool:
    """The call stands in a part of the expression that is not always evaluated, or not once."""
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


def _runs_at_last(node: ast.AST, call: ast.Call, function: Function) -> bool:
    """The call is in a `finally`, and the decision in what stands before it: it is come to on every way."""
    around = [outer for outer, _ in ancestors(node, function)]
    for outer, inner in ancestors(call, function):
        if isinstance(outer, _TRIES) and inner in outer.finalbody and outer in around:
            return not any(part is node or part in around for part in outer.finalbody)
    return False


class _Ways:
    """Where control can go in one function, with an eye on one call in it."""

    def __init__(self, function: Function, call: ast.Call, above: list[ast.AST]) -> None:
        self._call = call
        self._flow = Flow(function)
        self._raising = {outer for outer in above if isinstance(outer, ast.ExceptHandler)}
        self._edges: dict[_Node, list[_Node]] = {self._flow.exit: []}
        for spot in self._flow.spots:
            self._edges.setdefault(self._node(spot), []).extend(self._after(spot))
            if _iterable(spot) is not None:
                self._edges[self._before_rounds(spot)] = [self._node(spot)]
        self._end_loops()

    @property
    def has_call(self) -> bool:
        return self._call in self._edges

    def starts(self, node: Deciding) -> list[set[_Node]]:
        """For each copy of a decision, what can come next."""
        spots = [s for s in self._flow.spots if s.node is node and not s.is_round]
        match node:
            case ast.ExceptHandler():
                return [self._caught(node, spots)]
            case ast.Assert():
                return [{*self._on(s), *(s.handlers or (self._flow.exit,))} for s in spots]
            case _:
                return [set(self._on(s)) for s in spots if any(c and c.node is node for c, _ in s.ways)]

    def hang_on(self, starts: set[_Node]) -> bool:
        """The call can be come to before the ways have met."""
        meeting = self._meeting(starts)
        return self._call in self._reached(starts, without={meeting})

    def _caught(self, handler: ast.ExceptHandler, spots: list[Spot]) -> set[_Node]:
        """Into the handler, or on from what could have raised. One that always raises again has no say."""
        inside = any(self._call is n for n in ast.walk(handler))
        if leaving(handler.body) == "raise" and not inside:
            return set()
        raising = [s for s in self._flow.spots if any(h in spots for h in s.handlers) and _can_raise(s)]
        return {*spots, *(after for s in raising for after in self._after(s))}

    def _on(self, spot: Spot) -> Iterator[_Node]:
        """Where control goes if nothing is raised."""
        for _, after in spot.ways:
            again = spot.is_round and after.node is spot.node
            yield self._node(after) if again or _iterable(after) is None else self._before_rounds(after)

    def _after(self, spot: Spot) -> list[_Node]:
        """Exceptions count where they are raised on purpose, and where the call stands in what catches them."""
        found = list(self._on(spot))
        if spot.raises:
            found += spot.handlers
        elif _can_raise(spot):
            found += [h for h in spot.handlers if h.node in self._raising]
        return found or [self._flow.exit]

    def _node(self, spot: Spot) -> _Node:
        parts = () if _iterable(spot) is not None else spot.parts
        return self._call if any(self._makes(part, spot) for part in parts) else spot

    def _before_rounds(self, head: Spot) -> _Node:
        iterable = _iterable(head)
        assert iterable is not None  # the callers have looked
        return self._call if self._makes(iterable, head) else iterable

    def _makes(self, part: ast.AST, spot: Spot) -> bool:
        if part in spot.left_out:
            return False
        return part is self._call or any(self._makes(child, spot) for child in ast.iter_child_nodes(part))

    def _end_loops(self) -> None:
        """A loop without a way out is taken to end some time: all rounds are alike to those after it."""
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
            if node not in ending and isinstance(node, Spot) and node.is_round:
                self._edges[node].append(self._flow.exit)

    def _meeting(self, starts: set[_Node]) -> _Node:
        """The first place through which all ways come: the exit, if no other. It lies on every way, so one way is enough
        to look for it.
        """
        for node in reversed(list(self._one_way(starts))):
            if self._flow.exit not in self._reached(starts, without={node}):
                return node
        return self._flow.exit

    def _one_way(self, starts: set[_Node]) -> Iterator[_Node]:
        """The shortest, from its end."""
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

    def _reached(self, starts: Iterable[_Node], without: set[_Node]) -> set[_Node]:
        seen = {n for n in starts if n not in without}
        pending = list(seen)
        while pending:
            fresh = [n for n in self._edges.get(pending.pop(), ()) if n not in seen and n not in without]
            seen.update(fresh)
            pending += fresh
        return seen


def _iterable(spot: Spot) -> ast.expr | None:
    head = isinstance(spot.node, ast.For | ast.AsyncFor) and not spot.is_round
    return spot.node.iter if head and isinstance(spot.node, ast.For | ast.AsyncFor) else None


def _can_raise(spot: Spot) -> bool:
    """As the bridge sees it: calls and subscripts do."""
    return spot.raises or any(isinstance(n, ast.Call | ast.Subscript) for p in spot.parts for n in ast.walk(p))
