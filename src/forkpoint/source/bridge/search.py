"""Searches paths through the program from one communication call to the next, across functions, and their costs.

The cost of a path is what a rank would have had to do without leaving a trace: other communication calls cost most,
then caught exceptions, then more rounds of loops.
"""

import ast
import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind
from forkpoint.source.bridge.sides import Chain, CodeLine, StackMap
from forkpoint.source.code import Function
from forkpoint.source.flow import Point, Turn

MAX_STATES = 30_000
"""Per search: enough for a trainer of some thousand lines. What is farther away is not searched."""
MAX_DEPTH = 16
"""Nested calls."""
ROUND, CAUGHT, PASSED = 1, 3, 8
"""Costs of one more round, of a caught exception, and of a communication call, which would have been recorded."""
FAR = 1_000_000


@dataclass(slots=True, eq=False, repr=False)
class Above:
    """The call that is running, and its callers. One object per context, compared by identity."""

    parent: "Above | None"
    point: Point
    call: int
    depth: int


State = tuple[Above | None, Point, int]
"""The running call, the point in it, and the index of the next call at that point."""


@dataclass(frozen=True, slots=True)
class Called:
    """A call that communicates, or runs functions that do."""

    node: ast.Call | None
    op: str | None
    """Set if the call itself communicates; `backward` and `forward` are passes of a wrapped model."""
    kind: ApiKind | None
    callees: tuple[Function, ...] = ()
    certain: bool = True
    """False if it may run another function instead."""


@dataclass(slots=True, eq=False, repr=False)
class ProgramFlow:
    """Control flow across functions, as far as it matters for communication."""

    analysis: Analysis
    places: StackMap
    backward_communicates: bool
    """True if calls without a user frame were recorded: those come from backward passes."""
    _seen_callees: dict[Point, dict[Function, None]] = field(default_factory=lambda: defaultdict(dict))
    _seen_ops: set[Point] = field(default_factory=set)
    _called: dict[Point, tuple[Called, ...]] = field(default_factory=dict)
    _contexts: dict[tuple[Above | None, Point, int], Above] = field(default_factory=dict)

    def learn(self, chains: Iterable[Chain]) -> None:
        """Recorded stacks show which calls were made, even where the source does not."""
        for chain in chains:
            for place, below in pairwise(chain):
                for point in self.places.points(place)[:1]:
                    self._seen_callees[point].setdefault(below.function)
            if chain:
                self._seen_ops.update(self._calling(chain[-1])[:1])

    def _calling(self, place: CodeLine) -> list[Point]:
        """The points of a line, those that communicate first: `all_reduce(x) if ready else x` has three."""
        return sorted(self.places.points(place), key=lambda point: not self._has_op(point))

    # what a point calls

    def called(self, point: Point) -> tuple[Called, ...]:
        if point not in self._called:
            self._called[point] = tuple(self._find_called(point))
        return self._called[point]

    def _find_called(self, point: Point) -> Iterator[Called]:
        unseen = dict(self._seen_callees.get(point, {}))
        if point in self._seen_ops and not self._has_op(point):
            # The recorder saw a call from here: a wrapped model's forward pass, or a hook.
            yield Called(None, "forward", ApiKind.IMPLICIT)
        for part in point.parts:
            for call in _calls(part, point.left_out):
                found = self._one(call, point)
                if found is not None:
                    for callee in found.callees:
                        unseen.pop(callee, None)
                    yield found
        if unseen:
            yield Called(None, None, None, tuple(unseen))

    def _has_op(self, point: Point) -> bool:
        api = self.analysis.communication.api
        return any(api(call, point.function) is not None for p in point.parts for call in _calls(p, point.left_out))

    def _one(self, call: ast.Call, point: Point) -> Called | None:
        api = self.analysis.communication.api(call, point.function)
        if api is not None:
            silent = (
                api.op == "backward"
                and (point.in_no_sync or not self.backward_communicates)
                and point not in self._seen_ops
            )
            silent = silent or (api.op == "forward" and point not in self._seen_ops)
            return None if silent else Called(call, api.op, api.kind)
        found = self.analysis.resolver.callees(call, point.function)
        mattering = tuple(f for f in found.functions if self._matters(f))
        if not mattering:
            return None
        return Called(call, None, None, mattering, certain=len(mattering) == len(found.functions))

    def _matters(self, function: Function) -> bool:
        known = self.analysis.communication
        return (
            function in known.reaches
            or function in known.messages
            or any(
                point.ends_process or point in self._seen_callees or point in self._seen_ops
                for point in self.places.flow(function).points
            )
        )

    def calls_wrapped(self, place: CodeLine) -> bool:
        """The forward pass of a model wrapped for distributed training."""
        calls = (c for s in self.places.points(place)[:1] for p in s.parts for c in _calls(p, s.left_out))
        return any((api := self.analysis.communication.api(c, place.function)) and api.op == "forward" for c in calls)

    # states

    def state_of(self, chain: Chain) -> State | None:
        """The state of a stack: before the call that its innermost line makes."""
        above: Above | None = None
        for place, below in pairwise(chain):
            point = next(iter(self.places.points(place)), None)
            if point is None:
                return None
            above = self._context(above, point, self._index(point, below.function))
        return self._before_op(above, chain[-1]) if chain else None

    def _index(self, point: Point, callee: Function) -> int:
        return next((i for i, c in enumerate(self.called(point)) if callee in c.callees), 0)

    def _before_op(self, above: Above | None, place: CodeLine) -> State | None:
        for point in self._calling(place):
            ops = [i for i, c in enumerate(self.called(point)) if c.op is not None]
            return above, point, ops[0] if ops else 0
        return None

    def op_at(self, state: State) -> Called | None:
        _, point, index = state
        called = self.called(point)
        return called[index] if index < len(called) and called[index].op is not None else None

    def following(self, state: State) -> Iterator[tuple[Turn | None, State]]:
        above, point, index = state
        called = self.called(point)
        yield from self._raised(state)
        if point.node is None:
            if above is not None:
                yield None, (above.parent, above.point, above.call + 1)
        elif index < len(called):
            now = called[index]
            entered = False
            for callee in now.callees:
                if not _is_running(callee, above, point) and (above.depth if above else 0) < MAX_DEPTH:
                    entered = True
                    yield None, (self._context(above, point, index), self.places.flow(callee).entry, 0)
            if now.op is not None or not now.certain or not entered:
                yield None, (above, point, index + 1)
        else:
            yield from ((turn, (above, after, 0)) for turn, after in point.successors)

    def _raised(self, state: State) -> Iterator[tuple[Turn, State]]:
        """To the nearest enclosing handlers, in this function or a caller."""
        above, point, _ = state
        if not point.can_raise:
            return
        while not point.handlers and above is not None:
            above, point = above.parent, above.point
        for handler in point.handlers:
            assert isinstance(handler.node, ast.ExceptHandler)
            yield Turn(handler.node, None, handler.node.body), (above, handler, 0)

    def _context(self, parent: Above | None, point: Point, call: int) -> Above:
        key = (parent, point, call)
        if key not in self._contexts:
            self._contexts[key] = Above(parent, point, call, parent.depth + 1 if parent else 1)
        return self._contexts[key]

    def cost(self, state: State) -> int:
        """Cost of passing this state."""
        _, point, _ = state
        if point.is_round:
            return ROUND
        if isinstance(point.node, ast.ExceptHandler) and not point.parts:
            return CAUGHT
        op = self.op_at(state)
        return PASSED if op is not None and op.kind in (ApiKind.COLLECTIVE, ApiKind.IMPLICIT, ApiKind.P2P) else 0


@dataclass(slots=True, eq=False, repr=False)
class Region:
    """All states that can be reached from some starts."""

    flow: ProgramFlow
    starts: tuple[State, ...]
    ways: dict[State, list[tuple[Turn | None, State]]]
    back: dict[State, list[State]]
    reached: dict[State, int]
    """Cost of reaching each state."""

    def distances(self, targets: Iterable[State], cost: Callable[[State], int] | None = None) -> dict[State, int]:
        """Cost of reaching a target from each state; paths end at targets."""
        cost_of = cost or self.flow.cost
        goals = set(targets)
        known: dict[State, int] = {}
        pending = [(0, i, t) for i, t in enumerate(goals) if t in self.back or t in self.ways]
        order = len(pending)
        heapq.heapify(pending)
        while pending:
            far, _, state = heapq.heappop(pending)
            if state in known:
                continue
            known[state] = far
            for before in self.back.get(state, ()):
                if before not in known and before not in goals:
                    order += 1
                    heapq.heappush(pending, (far + cost_of(before), order, before))
        return known


def explore(flow: ProgramFlow, starts: Iterable[State]) -> Region:
    """Cheapest first, so that the limit cuts off what is farthest."""
    ways: dict[State, list[tuple[Turn | None, State]]] = {}
    back: dict[State, list[State]] = defaultdict(list)
    reached: dict[State, int] = {}
    first = tuple(dict.fromkeys(starts))
    pending = [(0, i, s) for i, s in enumerate(first)]
    order = len(pending)
    while pending and len(ways) < MAX_STATES:
        cost, _, state = heapq.heappop(pending)
        if state in reached:
            continue
        reached[state] = cost
        ways[state] = list(flow.following(state))
        beyond = cost + flow.cost(state) if state not in first else cost
        for _, after in ways[state]:
            back[after].append(state)
            if after not in reached:
                order += 1
                heapq.heappush(pending, (beyond, order, after))
    return Region(flow, first, ways, back, reached)


def find_states(region: Region, fits: Callable[[Called], bool]) -> list[State]:
    return [s for s in region.ways if (op := region.flow.op_at(s)) is not None and fits(op)]


def _is_running(function: Function, above: Above | None, point: Point) -> bool:
    if point.function is function:
        return True
    while above is not None:
        if above.point.function is function:
            return True
        above = above.parent
    return False


def _calls(node: ast.AST, left_out: frozenset[ast.AST]) -> Iterator[ast.Call]:
    """In the order of evaluation: arguments before the call."""
    if node in left_out or isinstance(node, ast.Lambda):
        return
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, left_out)
    if isinstance(node, ast.Call):
        yield node
