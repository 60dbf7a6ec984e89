"""From one communication call to the next: the ways through the program, across functions, and what each costs.

A way costs what it would have to have done unseen: other communication calls above all, then exceptions that were
caught, then further rounds of loops.
"""

import ast
import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from forkpoint.bridge.flow import Choice, Spot
from forkpoint.bridge.places import Chain, Place, Places
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Kind
from forkpoint.source.code import Function

MAX_STATES = 30_000
"""Of one search: enough for a trainer of some thousand lines; what lies farther is not looked at."""
MAX_DEPTH = 16
"""Calls inside calls."""
ROUND, CAUGHT, PASSED = 1, 3, 8
"""Costs: a further round is what loops are for, an exception is rarer, and calls that ranks passed would be recorded."""
FAR = 1_000_000


@dataclass(slots=True, eq=False, repr=False)
class Above:
    """The call that is being run, and those above it. One object per context: compared by identity."""

    parent: "Above | None"
    spot: Spot
    call: int
    depth: int


State = tuple[Above | None, Spot, int]
"""In which call, at which spot, before which of its calls."""


@dataclass(frozen=True, slots=True)
class Called:
    """A call that communicates or leads to what does."""

    node: ast.Call | None
    op: str | None
    """The communication it is; `backward` and `forward` are those of a wrapped model."""
    kind: Kind | None
    callees: tuple[Function, ...] = ()
    certain: bool = True
    """False: it may run something else as well."""


@dataclass(slots=True, eq=False, repr=False)
class Walk:
    analysis: Analysis
    places: Places
    backward_speaks: bool
    """Backward passes communicate in this job: calls without a frame of the user's were recorded."""
    _seen_callees: dict[Spot, dict[Function, None]] = field(default_factory=lambda: defaultdict(dict))
    _seen_ops: set[Spot] = field(default_factory=set)
    _called: dict[Spot, tuple[Called, ...]] = field(default_factory=dict)
    _contexts: dict[tuple[Above | None, Spot, int], Above] = field(default_factory=dict)

    def learn(self, chains: Iterable[Chain]) -> None:
        """Stacks show which calls were made, also where source does not."""
        for chain in chains:
            for place, below in pairwise(chain):
                for spot in self.places.spots(place)[:1]:
                    self._seen_callees[spot].setdefault(below.function)
            if chain:
                self._seen_ops.update(self.places.spots(chain[-1])[:1])

    # what a spot calls

    def called(self, spot: Spot) -> tuple[Called, ...]:
        if spot not in self._called:
            self._called[spot] = tuple(self._find_called(spot))
        return self._called[spot]

    def _find_called(self, spot: Spot) -> Iterator[Called]:
        unseen = dict(self._seen_callees.get(spot, {}))
        if spot in self._seen_ops and not any(
            self._is_op(c, spot) for p in spot.parts for c in _calls(p, spot.left_out)
        ):
            # A wrapped model's forward, a hook: the recorder saw a call from here.
            yield Called(None, "forward", Kind.IMPLICIT)
        for part in spot.parts:
            for call in _calls(part, spot.left_out):
                found = self._one(call, spot)
                if found is not None:
                    for callee in found.callees:
                        unseen.pop(callee, None)
                    yield found
        if unseen:
            yield Called(None, None, None, tuple(unseen))

    def _is_op(self, call: ast.Call, spot: Spot) -> bool:
        return self.analysis.communication.api(call, spot.function) is not None

    def _one(self, call: ast.Call, spot: Spot) -> Called | None:
        api = self.analysis.communication.api(call, spot.function)
        if api is not None:
            silent = api.op == "backward" and (spot.quiet or not self.backward_speaks) and spot not in self._seen_ops
            silent = silent or (api.op == "forward" and spot not in self._seen_ops)
            return None if silent else Called(call, api.op, api.kind)
        found = self.analysis.resolver.callees(call, spot.function)
        speaking = tuple(f for f in found.functions if self._speaks(f))
        if not speaking:
            return None
        return Called(call, None, None, speaking, certain=len(speaking) == len(found.functions))

    def _speaks(self, function: Function) -> bool:
        known = self.analysis.communication
        return (
            function in known.reaches
            or function in known.messages
            or any(
                spot.quits or spot in self._seen_callees or spot in self._seen_ops
                for spot in self.places.flow(function).spots
            )
        )

    def calls_wrapped(self, place: Place) -> bool:
        """The forward pass of a model wrapped for distributed training."""
        calls = (c for s in self.places.spots(place)[:1] for p in s.parts for c in _calls(p, s.left_out))
        return any((api := self.analysis.communication.api(c, place.function)) and api.op == "forward" for c in calls)

    # states

    def state_of(self, chain: Chain) -> State | None:
        """Where a stack stands: before the call that its innermost line makes."""
        above: Above | None = None
        for place, below in pairwise(chain):
            spot = next(iter(self.places.spots(place)), None)
            if spot is None:
                return None
            above = self._context(above, spot, self._index(spot, below.function))
        return self._before_op(above, chain[-1]) if chain else None

    def _index(self, spot: Spot, callee: Function) -> int:
        return next((i for i, c in enumerate(self.called(spot)) if callee in c.callees), 0)

    def _before_op(self, above: Above | None, place: Place) -> State | None:
        for spot in self.places.spots(place):
            ops = [i for i, c in enumerate(self.called(spot)) if c.op is not None]
            return above, spot, ops[0] if ops else 0
        return None

    def op_at(self, state: State) -> Called | None:
        _, spot, index = state
        called = self.called(spot)
        return called[index] if index < len(called) and called[index].op is not None else None

    def following(self, state: State) -> Iterator[tuple[Choice | None, State]]:
        above, spot, index = state
        called = self.called(spot)
        yield from self._raised(state)
        if spot.node is None:
            if above is not None:
                yield None, (above.parent, above.spot, above.call + 1)
        elif index < len(called):
            now = called[index]
            entered = False
            for callee in now.callees:
                if not _is_running(callee, above, spot) and (above.depth if above else 0) < MAX_DEPTH:
                    entered = True
                    yield None, (self._context(above, spot, index), self.places.flow(callee).entry, 0)
            if now.op is not None or not now.certain or not entered:
                yield None, (above, spot, index + 1)
        else:
            yield from ((choice, (above, after, 0)) for choice, after in spot.ways)

    def _raised(self, state: State) -> Iterator[tuple[Choice, State]]:
        """Into the nearest handlers around: of this function, or of one that runs it."""
        above, spot, _ = state
        if not spot.raises and not any(
            isinstance(n, ast.Call | ast.Subscript) for p in spot.parts for n in ast.walk(p)
        ):
            return
        while not spot.handlers and above is not None:
            above, spot = above.parent, above.spot
        for handler in spot.handlers:
            assert isinstance(handler.node, ast.ExceptHandler)
            yield Choice(handler.node, None, handler.node.body), (above, handler, 0)

    def _context(self, parent: Above | None, spot: Spot, call: int) -> Above:
        key = (parent, spot, call)
        if key not in self._contexts:
            self._contexts[key] = Above(parent, spot, call, parent.depth + 1 if parent else 1)
        return self._contexts[key]

    def cost(self, state: State) -> int:
        """Of going through this state."""
        _, spot, _ = state
        if spot.is_round:
            return ROUND
        if isinstance(spot.node, ast.ExceptHandler) and not spot.parts:
            return CAUGHT
        op = self.op_at(state)
        return PASSED if op is not None and op.kind in (Kind.COLLECTIVE, Kind.IMPLICIT, Kind.P2P) else 0


@dataclass(slots=True, eq=False, repr=False)
class Region:
    """All states that a walk from some start comes to."""

    walk: Walk
    starts: tuple[State, ...]
    ways: dict[State, list[tuple[Choice | None, State]]]
    back: dict[State, list[State]]
    reached: dict[State, int]
    """What it costs to come to each."""

    def distances(self, targets: Iterable[State], *, unseen: bool = False) -> dict[State, int]:
        """What it costs from each state to come to a target, which is not walked through. Of a rank whose calls are
        not recorded (`unseen`), passing one costs little.
        """
        goals = set(targets)
        known: dict[State, int] = {}
        pending = [(0, i, t) for i, t in enumerate(goals) if t in self.back or t in self.ways]
        order = len(pending)
        heapq.heapify(pending)
        while pending:
            cost, _, state = heapq.heappop(pending)
            if state in known:
                continue
            known[state] = cost
            for before in self.back.get(state, ()):
                if before not in known and before not in goals:
                    order += 1
                    heapq.heappush(
                        pending, (cost + min(self.walk.cost(before), ROUND if unseen else FAR), order, before)
                    )
        return known


def explore(walk: Walk, starts: Iterable[State]) -> Region:
    """Cheapest first, so that what is left out at the limit is what is farthest."""
    ways: dict[State, list[tuple[Choice | None, State]]] = {}
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
        ways[state] = list(walk.following(state))
        beyond = cost + walk.cost(state) if state not in first else cost
        for _, after in ways[state]:
            back[after].append(state)
            if after not in reached:
                order += 1
                heapq.heappush(pending, (beyond, order, after))
    return Region(walk, first, ways, back, reached)


def find_states(region: Region, fits: Callable[[Called], bool]) -> list[State]:
    return [s for s in region.ways if (op := region.walk.op_at(s)) is not None and fits(op)]


def _is_running(function: Function, above: Above | None, spot: Spot) -> bool:
    if spot.function is function:
        return True
    while above is not None:
        if above.spot.function is function:
            return True
        above = above.parent
    return False


def _calls(node: ast.AST, left_out: frozenset[ast.AST]) -> Iterator[ast.Call]:
    """In the order in which they are made: arguments before the call."""
    if node in left_out or isinstance(node, ast.Lambda):
        return
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, left_out)
    if isinstance(node, ast.Call):
        yield node
