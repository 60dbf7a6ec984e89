"""Which decisions separate the two sides: after them, one side reaches its next call and the other does not."""

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from forkpoint.model.capture import Capture
from forkpoint.model.headline import UNKNOWN_CALL
from forkpoint.model.op import Stack
from forkpoint.model.world import name_ranks
from forkpoint.source.analysis import Analysis
from forkpoint.source.branches import CommStep, name_step
from forkpoint.source.bridge.fork import Fork, ForkKind, Separation, Weighed
from forkpoint.source.bridge.headlines import holds, tell_fork
from forkpoint.source.bridge.search import FAR, PASSED, ROUND, Called, ProgramFlow, Region, State, explore, find_states
from forkpoint.source.bridge.sides import Chain, ForkSide, Sides, StackMap, outermost
from forkpoint.source.bridge.why import because, can_change, how_caught, how_different, tell_condition
from forkpoint.source.code import Function
from forkpoint.source.flow import Turn, exit_of
from forkpoint.source.syntax import Loop, enclosing
from forkpoint.source.value import Reasons

_FULL = PASSED
"""One extra communication call is enough to rule a path out."""


def find_separations(sides: Sides, flow: ProgramFlow) -> list[Separation]:
    places = flow.places
    usual, odd = places.chain(sides.usual.stack), _odd_chain(sides.odd, places)
    root = outermost(c for c in (usual, odd, places.chain(sides.usual.live)) if c)
    if root is None:
        return []
    whole: State = (None, places.flow(root).entry, 0)
    starts = _starts(sides.before, whole, flow)
    region = explore(flow, starts)
    to_usual = _targets(sides.usual, usual, region, whole)
    to_odd = _targets(sides.odd, odd, region, whole)
    if not to_usual or not to_odd:
        return []
    unseen = not sides.odd.recorded
    direct = list(_separating(region, to_usual, to_odd, unseen=unseen))
    # For a loop that one side has just left, no earlier round is needed as an explanation.
    left = {p.turn.node for p in direct if isinstance(p.turn.node, Loop)}
    return [*direct, *(p for p in _slipping(region, [*starts, *to_usual], to_odd) if p.turn.node not in left)]


def _odd_chain(odd: ForkSide, places: StackMap) -> Chain:
    chain = places.chain(odd.stack) if odd.op is not None or odd.stack else ()
    if chain or (odd.op is not None and odd.stack is not None):
        return chain
    return places.chain(odd.raised.stack) if odd.raised else places.chain(odd.live)


def program_flow(capture: Capture, analysis: Analysis) -> ProgramFlow:
    """The program's control flow, with what recorded stacks show of it."""
    places = StackMap(analysis.program)
    stacks = capture.tables.stacks.values()
    chains = [places.chain(s) for s in stacks]
    flow = ProgramFlow(analysis, places, any(is_from_backward(s, c) for s, c in zip(stacks, chains, strict=True)))
    flow.learn(chains)
    return flow


def is_from_backward(stack: Stack | None, chain: Chain) -> bool:
    return stack is not None and not chain


def _starts(before: Iterable[Stack | None], whole: State, flow: ProgramFlow) -> list[State]:
    """The states right after the last call that both sides made."""
    for stack in before:
        chain = flow.places.chain(stack)
        if chain:
            state = flow.state_of(chain)
            return [state] if state else [whole]
        if stack is None:
            break
        found = find_states(explore(flow, [whole]), _is_backward)
        return found or [whole]
    return [whole]


def _is_backward(called: Called) -> bool:
    return called.op == "backward"


def _targets(side: ForkSide, chain: Chain, region: Region, whole: State) -> list[State]:
    if chain:
        state = region.flow.state_of(chain)
        return [state] if state in region.back or state in region.ways else []
    if side.op is not None and side.stack is not None:
        found = find_states(region, _is_backward)
        live = region.flow.state_of(region.flow.places.chain(side.live)) if side.live and not found else None
        return found or [s for s in (live,) if s in region.back]
    if not side.recorded and side.raised is None:
        # No dump and no exception: its program ended somewhere.
        _, entry, _ = whole
        end = (None, region.flow.places.flow(entry.function).exit, 0)
        return [s for s in region.ways if s == end or s[1].ends_process]
    return []


def _separating(region: Region, usual: list[State], odd: list[State], *, unseen: bool) -> Iterator[Separation]:
    """Decisions with one outcome that is nearer to the usual call, and one that is nearer to the odd one."""
    # For a rank whose calls are not recorded, other calls on the way cost little.
    cost = region.flow.cost
    to_usual = region.distances(usual)
    to_odd = region.distances(odd, (lambda state: min(cost(state), ROUND)) if unseen else cost)
    best = _best(region, to_usual) + _best(region, to_odd)
    found: dict[ast.AST, Separation] = {}
    for state, ways in _decisions(region):
        one = min(ways, key=lambda w: (to_usual.get(w[1], FAR), -to_odd.get(w[1], FAR)))
        other = min(ways, key=lambda w: (to_odd.get(w[1], FAR), -to_usual.get(w[1], FAR)))
        extra = (_extra_cost(to_usual, other[1], one[1]), _extra_cost(to_odd, one[1], other[1]))
        both = one[1] in to_usual and other[1] in to_odd
        if both and min(extra) >= 0 and max(extra) > 0 and (one[0] or other[0]):
            slack = 2 * region.reached[state] + to_usual[one[1]] + to_odd[other[1]] - best
            separates = sum(min(d, _FULL) for d in extra) / (2 * _FULL)
            _keep(found, Separation(_owner(state, one, other), one[0], other[0], separates, slack))
    yield from found.values()


def _slipping(region: Region, calls: list[State], odd: list[State]) -> Iterator[Separation]:
    """Decisions that let a rank skip a call in a loop in which the sides still agreed.

    The rank reaches the same call again in a later round. A rank that reaches another call first parts from the others
    at once, so that is not an earlier round.
    """
    to_call, to_odd = region.distances(calls, _skipped_cost(region.flow)), region.distances(odd)
    best = _best(region, to_call)
    found: dict[ast.AST, Separation] = {}
    for state, ways in _decisions(region):
        one = min(ways, key=lambda w: to_call.get(w[1], FAR))
        for other in ways:
            extra = _extra_cost(to_call, other[1], one[1])
            goes_on = extra < PASSED or to_odd.get(other[1], FAR) < PASSED
            if extra > 0 and goes_on and (one[0] or other[0]):
                slack = region.reached[state] + to_call[one[1]] - best
                _keep(found, Separation(_owner(state, one, other), one[0], other[0], 1.0, slack, slip=True))
    yield from found.values()


def _skipped_cost(flow: ProgramFlow) -> Callable[[State], int]:
    """DDP uses forward passes to communicate in some rounds only, so passing one costs little."""

    def cost(state: State) -> int:
        op = flow.op_at(state)
        return min(flow.cost(state), ROUND) if op is not None and op.op == "forward" else flow.cost(state)

    return cost


def find_missing(chain: Chain, flow: ProgramFlow) -> Iterator[Separation]:
    """Decisions with an outcome that does not lead to the call of this chain, or only in another round of a surrounding
    loop.

    They are searched on the way from one round's call to the next one's, or from the program's start if there is no
    such way.
    """
    target = flow.state_of(chain)
    if target is None:
        return
    region = explore(flow, [target])
    if target not in region.back:
        region = explore(flow, [(None, flow.places.flow(chain[0].function).entry, 0)])
    around = {node for place in chain for node in enclosing(place.line, place.function) if isinstance(node, Loop)}
    rounds = region.distances([target], lambda state: int(state[1].is_round and state[1].node in around))
    to_call = region.distances([target])
    best = _best(region, to_call)
    found: dict[ast.AST, Separation] = {}
    for state, ways in _decisions(region):
        one = min(ways, key=lambda w: (rounds.get(w[1], FAR), to_call.get(w[1], FAR)))
        for other in ways if one[1] in rounds else ():
            # A handler that ends the program reacts to an error, and does not make a rank miss the call.
            ends = other[0] is not None and other[0].test is None and other[1] not in rounds
            if _extra_cost(rounds, other[1], one[1]) > 0 and (one[0] or other[0]) and not ends:
                slack = max(0, region.reached[state] + to_call[one[1]] - best)
                _keep(found, Separation(_owner(state, one, other), one[0], other[0], 1.0, slack))
    yield from found.values()


def _owner(state: State, *ways: tuple[Turn | None, State]) -> Function:
    """A handler may be in a caller of the function that raised."""
    caught = (after for turn, after in reversed(ways) if turn is not None and turn.test is None)
    return next(caught, state)[1].function


def _decisions(region: Region) -> Iterator[tuple[State, list[tuple[Turn | None, State]]]]:
    """Places at which ranks may go different ways. Whether a file is the script is the same on all of them."""
    return (
        (state, ways)
        for state, ways in region.ways.items()
        if len(ways) > 1 and not any(turn and turn.test and _asks_for_script(turn.test) for turn, _ in ways)
    )


def _asks_for_script(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))


def _best(region: Region, distances: dict[State, int]) -> int:
    return min((distances.get(s, FAR) for start in region.starts for _, s in region.ways.get(start, ())), default=FAR)


def _keep(found: dict[ast.AST, Separation], separation: Separation) -> None:
    """If one decision occurs in several contexts, keeps the most likely."""
    node = separation.turn.node
    before = found.get(node)
    if before is None or (separation.slack, -separation.separates) < (before.slack, -before.separates):
        found[node] = separation


def _extra_cost(distances: dict[State, int], way: State, than: State) -> int:
    return distances.get(way, FAR) - distances.get(than, FAR)


# ---------------------------------------------------------------------------------------------------------------------
# How well a separating decision explains the divergence, and the sentence that describes it.

UNEXPLAINED = "; the source does not show why it would differ"
_SLIP = 0.6
"""It can only have happened in an earlier round, where it left no trace."""
_UNSEEN = 0.8
"""The same, for a rank whose calls are not recorded."""
_FIXED = 0.1
"""It went the other way in the rounds before, and nothing in the condition can change."""
LEAST = 0.1
"""Forks below this are not shown: a wrong place is worse than none."""
_PER_COST = 0.9
"""Per unit of cost that a path through the decision has above the cheapest path."""


def weigh(separation: Separation, sides: Sides, analysis: Analysis) -> Weighed:
    turn, function = separation.turn, separation.function
    reasons, differs = why_decided(turn, function, analysis)
    weight = differs * (0.4 + 0.6 * separation.separates) * _PER_COST**separation.slack
    if separation.slip:
        weight *= _SLIP if sides.odd.recorded else _UNSEEN
    if separation.slip or sides.same_rank:
        weight *= 1.0 if turn.test is None or can_change(turn.test, function, analysis) else _FIXED
    kind = _kind(separation)
    step = _step(separation, analysis)
    told = _describe(kind, separation, step, sides)
    if not reasons:
        # What is not known must not read as known.
        told = f"if {told}, they separated here" if kind is ForkKind.LOOP else told
        told += UNEXPLAINED
    fork = Fork(
        kind=kind,
        function=function,
        node=turn.node,
        test=turn.test,
        reasons=reasons,
        step=step,
        cohort=sides.odd.cohort,
        confidence=0.0,
        sentence=told + because(reasons),
    )
    return Weighed(replace(fork, headlines=tell_fork(fork, separation, sides)), weight)


def why_decided(turn: Turn, function: Function, analysis: Analysis) -> tuple[Reasons, float]:
    if turn.test is not None:
        return how_different(turn.node, turn.test, function, analysis)
    assert isinstance(turn.node, ast.ExceptHandler)
    return how_caught(turn.node, function, analysis)


def _kind(separation: Separation) -> ForkKind:
    turn = separation.turn
    if isinstance(turn.node, ast.ExceptHandler):
        return ForkKind.CAUGHT
    if isinstance(turn.node, ast.For | ast.AsyncFor | ast.While):
        return ForkKind.LOOP
    if separation.odd is not None and exit_of(separation.odd.block) in {"return", "continue", "break"}:
        return ForkKind.LEFT
    return ForkKind.SKIPPED


def _step(separation: Separation, analysis: Analysis) -> CommStep | None:
    """The first communication in what one of the two sides ran."""
    for turn in (separation.usual, separation.odd):
        steps = analysis.branches.steps(turn.block, separation.function) if turn is not None else ()
        if steps:
            return steps[0]
    return None


def _describe(kind: ForkKind, separation: Separation, step: CommStep | None, sides: Sides) -> str:
    odd, usual = name_ranks(sides.odd.ranks, 2), name_ranks(sides.usual.ranks, 2)
    call = name_step(step) if step is not None else sides.usual.op or UNKNOWN_CALL
    turn = separation.turn
    condition = tell_condition(turn.test, separation.function)
    match kind:
        case ForkKind.CAUGHT:
            caught = tell_condition(getattr(turn.node, "type", None), separation.function)
            ran = step is not None and holds(turn, step)
            happened = f"{odd} caught {caught} here and {'ran' if ran else 'went on without'} {call}"
            if turn is not separation.odd:
                happened = f"{usual} caught {caught} here and {odd} did not"
        case ForkKind.LOOP:
            than = "" if sides.same_rank else f" than on {usual}"
            happened = f"the loop over {condition} ran a different number of rounds on {odd}{than}"
        case ForkKind.LEFT:
            block = separation.odd.block if separation.odd else ()
            happened = f"{_outcome(separation, condition)} {odd}, which took the `{exit_of(block)}`; {usual} went on{f' to {call}' if call != UNKNOWN_CALL else ''}"
        case _:
            happened = f"{_outcome(separation, condition)} {odd}, {_taken(separation.odd, usual)}"
    return f"in an earlier round, {happened}" if separation.slip else happened


def _outcome(separation: Separation, condition: str) -> str:
    """How the condition turned out, as a phrase before the ranks."""
    odd = separation.odd
    if odd is None or not isinstance(odd.node, ast.If):
        return f"{condition} had another result on"
    return f"{condition} was {'true' if odd.block is odd.node.body else 'false'} on"


def _taken(odd: Turn | None, usual: str) -> str:
    if odd is None or not isinstance(odd.node, ast.If):
        return f"compared with {usual}"
    if not odd.block:
        return f"which skipped this branch; {usual} took it"
    taken = "this branch" if odd.block is odd.node.body else "the `else`"
    return f"which took {taken}; {usual} did not"
