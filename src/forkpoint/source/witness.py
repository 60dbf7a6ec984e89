"""Capture + source -> SourceFacts: what the source shows about the lines at which ranks were seen, before anything is
judged.
"""

import ast
import builtins
import re
from collections import Counter
from collections.abc import Callable, Iterator

from msgspec import Struct

from forkpoint.model.capture import Capture, LeftProgram, OnTheWay, OtherWay, SourceFacts
from forkpoint.model.frames import Lines, program_lines
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind, Origin, Strength
from forkpoint.source.bridge.search import FAR, MAX_STATES, PASSED, ProgramFlow, State, explore
from forkpoint.source.bridge.separate import find_missing, program_flow
from forkpoint.source.bridge.sides import Chain, loops_left
from forkpoint.source.bridge.words import PRINTS, Spoken, read_words, stack_of
from forkpoint.source.code import Function
from forkpoint.source.flow import Point, Turn, ends_process
from forkpoint.source.sizes import are_fixed, are_own
from forkpoint.source.switches import left_before
from forkpoint.source.syntax import Loop, branches_and_loops, enclosing, guards, last_word, spans, test_of

_MAKE_GROUPS = frozenset(
    {"new_group", "new_subgroups", "split_group", "init_device_mesh", "DeviceMesh", "initialize_model_parallel"}
)
_WHOLE = frozenset({"None", "WORLD"})


_Words = dict[int, list[Spoken]]


class _SeenPlace(Struct, frozen=True):
    """Where ranks were seen, and the lines of the source that led there."""

    lines: Lines
    chain: Chain
    ranks: set[int]


def read_witness(capture: Capture, analysis: Analysis) -> SourceFacts:
    flow = program_flow(capture, analysis)
    places = _find_places(capture, flow)
    alone = not any(last_word(c.func) in _MAKE_GROUPS for f in analysis.program.functions() for c in f.calls)
    messages = _places(places, analysis, _is_message)
    whole = frozenset(one.lines for one in places) if alone else _places(places, analysis, _names_no_group)
    own = {one.lines: list(_own_tests(one.chain, analysis)) for one in places}
    words = {} if flow.places.misfits else read_words(capture, flow)
    left = tuple(_left_program(words, flow))
    words = {} if capture.cut_logs else words  # what follows needs the line that was really the last
    return SourceFacts(
        fixed_sizes=_places(places, analysis, are_fixed),
        own_sizes=_places(places, analysis, are_own),
        of_whole_job=whole - messages,
        ops=frozenset(_ops(analysis)),
        own_way=frozenset(lines for lines, tests in own.items() if tests),
        on_one_rank=frozenset(lines for lines, tests in own.items() if any(map(_holds_on_one, tests))),
        own_order=frozenset(one.lines for one in places if _is_in_own_order(one.chain, analysis)),
        other_ways=tuple(_other_ways(words, places, flow)),
        on_the_way=tuple(_on_the_way(words, places, flow)),
        left=left,
    )


def _ops(analysis: Analysis) -> Iterator[str]:
    for function in analysis.communicating():
        for call in function.calls:
            if (api := analysis.communication.api(call, function)) is not None and api.kind is not ApiKind.SETUP:
                yield api.op


def _places(
    places: list[_SeenPlace], analysis: Analysis, holds: Callable[[ast.Call, Function, Analysis], bool]
) -> frozenset[Lines]:
    """The places at which this holds for every call that communicates."""
    return frozenset(one.lines for one in places if _all_at(one.chain, analysis, holds))


def _find_places(capture: Capture, flow: ProgramFlow) -> list[_SeenPlace]:
    found: dict[Lines, _SeenPlace] = {}
    for seen in (*capture.stacks, *capture.events):
        if chain := flow.places.chain(seen.stack):
            lines = program_lines(seen.stack)
            place = found.setdefault(lines, _SeenPlace(lines, chain, set()))
            place.ranks.update(() if seen.rank is None else (seen.rank,))
    return list(found.values())


def _all_at(chain: Chain, analysis: Analysis, holds: Callable[[ast.Call, Function, Analysis], bool]) -> bool:
    """This holds for every call on this line that communicates, and there is at least one."""
    function, line = chain[-1].function, chain[-1].line
    calls = [c for c in function.calls if c.lineno <= line <= (c.end_lineno or c.lineno)]
    made = [c for c in calls if analysis.communication.api(c, function) is not None]
    return bool(made) and all(holds(c, function, analysis) for c in made)


def _is_message(call: ast.Call, function: Function, analysis: Analysis) -> bool:
    """Of two ranks, whatever groups there are."""
    api = analysis.communication.api(call, function)
    return api is not None and api.kind is ApiKind.P2P


def _names_no_group(call: ast.Call, function: Function, analysis: Analysis) -> bool:
    """`dist.all_reduce(x)`: a call of the library itself, for all ranks."""
    named = [k.value for k in call.keywords if k.arg in {"group", "mesh", "process_group"}]
    dotted = analysis.resolver.dotted(call.func, function) or ""
    return dotted.startswith("torch.distributed.") and all(
        last_word(n) in _WHOLE or ast.unparse(n) == "None" for n in named
    )


# ---------------------------------------------------------------------------------------------------------------------
# Conditions and loops around a line that need not be alike on all ranks.

_ONE_RANK = re.compile(
    r"_?(?:is_?)?(?:the_)?(?:world_|global_)?(?:main|master|chief|leader|primary|coordinator)(?:_?(?:process|rank))?"
    r"|_?is_(?:world_process|global|global_rank|rank)_?(?:zero|0)"
)
"""Names of conditions that hold on one rank of the whole job. Not `is_local_main_process`: each node has one."""
_GLOBAL_RANK = frozenset({"rank", "_rank", "global_rank", "world_rank", "get_rank", "process_index", "rank_id"})
"""Not `dp_rank` or `local_rank`, which several ranks have alike."""
_PER_DATA = frozenset({Origin.LOCAL_DATA, Origin.RANDOM, Origin.TIME, Origin.FILES, Origin.EXCEPTION, Origin.MEMORY})


class _OwnTest(Struct, frozen=True):
    """A condition on the way to a line."""

    test: ast.expr
    holds: bool
    """At that line. False in an `else`, and behind `if ...: return`."""
    by_rank: bool
    """It depends on the rank's number, for certain."""
    alone: bool
    """Ranks for which it is otherwise make no call instead: `if rank == 0: gather(x, all) else: gather(x)` is one call of all."""


def _own_tests(chain: Chain, analysis: Analysis) -> Iterator[_OwnTest]:
    for place in chain:
        on_line = [c for c in place.function.calls if c.lineno <= place.line <= (c.end_lineno or c.lineno)]
        tests = {one: None for c in on_line for one in (*guards(c, place.function), *left_before(c, place.function))}
        for test, holds in tests:
            reasons = analysis.differences.test(test, place.function).reasons
            by_rank = any(r.origin is Origin.RANK and r.strength is Strength.CERTAIN for r in reasons)
            if by_rank or any(r.origin in _PER_DATA and r.strength is not Strength.POSSIBLE for r in reasons):
                yield _OwnTest(
                    test, holds, by_rank, _is_silent(_other_arm(test, holds, place.function), place.function, analysis)
                )


def _holds_on_one(own: _OwnTest) -> bool:
    """`rank == 0`, `is_main_process()`, alone or as one of several conditions that all must hold; also as `if rank != 0: return`."""
    joined = ast.And if own.holds else ast.Or
    parts = own.test.values if isinstance(own.test, ast.BoolOp) and isinstance(own.test.op, joined) else [own.test]
    return (
        own.by_rank
        and own.alone
        and any(holds_on_one_rank(part) if own.holds else _is_any_other(part) for part in parts)
    )


def _other_arm(test: ast.expr, holds: bool, function: Function) -> list[ast.stmt]:
    node = next((n for n in branches_and_loops(function) if isinstance(n, ast.If) and n.test is test), None)
    return [] if node is None else node.orelse if holds else node.body


def _is_silent(block: list[ast.stmt], function: Function, analysis: Analysis) -> bool:
    calls = [node for statement in block for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return not any(analysis.communication.reach(call, function) for call in calls)


def _is_any_other(test: ast.expr) -> bool:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return holds_on_one_rank(operand)
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[ast.Constant(value=int())]):
            return _is_global_rank(left)
        case _:
            return False


def holds_on_one_rank(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=int())]):
            return _is_global_rank(left)
        case ast.Call(func=func):
            return holds_on_one_rank(func)
        case ast.Name() | ast.Attribute():
            return bool(_ONE_RANK.fullmatch((last_word(test) or "").lower()))
        case _:
            return False


def _is_global_rank(value: ast.expr) -> bool:
    """`rank`, `self.rank`, `dist.get_rank()`; a group's `get_rank(group)` is a number within it."""
    if isinstance(value, ast.Call):
        return not value.args and not value.keywords and _is_global_rank(value.func)
    return (last_word(value) or "").lower() in _GLOBAL_RANK


def _is_in_own_order(chain: Chain, analysis: Analysis) -> bool:
    return any(
        reason.origin is Origin.ORDER and reason.strength is not Strength.POSSIBLE
        for place in chain
        for node in enclosing(place.line, place.function)
        if isinstance(node, ast.For | ast.AsyncFor) and spans(node.body, place.line)
        for reason in analysis.differences.test(node.iter, place.function).extent
    )


# ---------------------------------------------------------------------------------------------------------------------
# Ranks whose last line comes from a place that the waiting ranks cannot have passed.


def _other_ways(words: _Words, places: list[_SeenPlace], flow: ProgramFlow) -> Iterator[OtherWay]:
    for place in places:
        missing = [turn for separation in find_missing(place.chain, flow) if (turn := separation.odd) is not None]
        for rank, said in sorted(words.items()):
            waiting = [words.get(other, []) for other in place.ranks]
            if rank in place.ranks or not _only_this_side_says(said, waiting, flow):
                continue
            if how := _how(said[-1], place.chain, missing, flow):
                yield OtherWay(rank, place.lines, how, said[-1].file, said[-1].line, said[-1].text)


def _on_the_way(words: _Words, places: list[_SeenPlace], flow: ProgramFlow) -> Iterator[OnTheWay]:
    for place in places:
        target = flow.state_of(place.chain)
        for rank, said in sorted(words.items()) if target is not None else ():
            last, waiting = said[-1], [words.get(other, []) for other in place.ranks]
            start = flow.state_of(_printed_at(last, place.chain, flow))
            if rank in place.ranks or not waiting or start is None or target is None:
                continue
            if not (_said_as_often(last, said, waiting) or _is_own_and_not_ahead(last, said, waiting)):
                continue
            if explore(flow, [start]).distances([target]).get(start, FAR) < PASSED:
                yield OnTheWay(rank, place.lines, last.file, last.line, last.text)


def _said_as_often(last: Spoken, said: list[Spoken], waiting: list[list[Spoken]]) -> bool:
    return len({sum(s.message is last.message for s in theirs) for theirs in (said, *waiting)}) == 1


def _is_own_and_not_ahead(last: Spoken, said: list[Spoken], waiting: list[list[Spoken]]) -> bool:
    """Only this rank printed that line, and no line that the others print as well shows it ahead of them."""
    own = Counter(id(s.message) for s in said)
    theirs = [Counter(id(s.message) for s in one) for one in waiting]
    shared = [message for message in own if any(message in one for one in theirs)]
    return (
        bool(shared)
        and id(last.message) not in shared
        and all(own[message] <= max(one[message] for one in theirs) for message in shared)
    )


def _only_this_side_says(said: list[Spoken], waiting: list[list[Spoken]], flow: ProgramFlow) -> bool:
    """The waiting ranks did not print this message as often, although they would have: they print in the same way, and
    not according to their role.
    """
    message = said[-1].message
    own, prints = sum(s.message is message for s in said), last_word(message.call.func)
    fewer = all(sum(s.message is message for s in theirs) < own for theirs in waiting)
    heard = all(any(last_word(s.message.call.func) == prints for s in theirs) for theirs in waiting)
    return bool(waiting) and fewer and heard and not _is_by_role(flow.places.chain(stack_of(said[-1], flow)), flow)


def _is_by_role(chain: Chain, flow: ProgramFlow) -> bool:
    """A condition on the way to this line depends on which rank it is."""
    tests = [(test_of(node), place.function) for place in chain for node in enclosing(place.line, place.function)]
    return any(
        reason.origin is Origin.RANK
        for test, function in tests
        for reason in flow.analysis.differences.test(test, function).reasons
    )


def _how(last: Spoken, peers: Chain, missing: list[Turn], flow: ProgramFlow) -> str | None:
    """How the rank that printed this line last continued without the call of its peers; None if it may still come, or
    if they wait in a library that the source does not contain.
    """
    target = flow.state_of(peers)
    if target is None or flow.op_at(target) is None or isinstance(target[1].node, ast.With | ast.AsyncWith):
        return None
    for turn in missing:
        if last.is_printed_in(turn.block) and not isinstance(turn.node, Loop):
            return f"took the branch at line {turn.node.lineno}, not the call"
    after = _printed_at(last, peers, flow)
    if not _makes_another_call_first(after, target, flow):
        return None
    return "had left the loop" if any(True for _ in loops_left(after, peers)) else "was past the call"


def _printed_at(last: Spoken, peers: Chain, flow: ProgramFlow) -> Chain:
    """The lines that led to this one: those of the peers, unless something else in the source calls what printed it."""
    own = flow.places.chain(stack_of(last, flow))
    shared = next((n for n, line in enumerate(peers) if own and line.function is own[0].function), 0)
    return (*peers[:shared], *own)


def _makes_another_call_first(after: Chain, target: State, flow: ProgramFlow) -> bool:
    """On every way from this line to the call, the program communicates elsewhere, or there is no way."""
    start = flow.state_of(after)
    if start is None:
        return False
    region = explore(flow, [start])
    return len(region.ways) < MAX_STATES and region.distances([target]).get(start, FAR) >= PASSED


# ---------------------------------------------------------------------------------------------------------------------
# Ranks whose last line comes from a place after which the program only ends.

_ENDINGS = frozenset({"exit", "_exit", "abort", "destroy_process_group"})
_QUIET = PRINTS | _ENDINGS | frozenset({"close", "flush", "format", "join", "strftime", "perf_counter", "time", "item",
                                        "get_rank", "get_world_size", "getpid"})  # fmt: skip
"""Calls that cannot communicate, by their last word. Others that the source does not contain might."""


def _left_program(words: _Words, flow: ProgramFlow) -> Iterator[LeftProgram]:
    """A cut log is as good as a whole one: whatever the rank printed later, it came to no call."""
    for rank, said in sorted(words.items()):
        last = said[-1]
        chain = flow.places.chain(stack_of(last, flow))
        start = flow.state_of(chain) if chain and chain[0].function.short == "<module>" else None
        region = explore(flow, [start]) if start is not None else None
        if region is None or len(region.ways) >= MAX_STATES or not all(_only_ends(s, flow) for s in region.ways):
            continue
        exits = [code for _, point, _ in region.ways if point.ends_process for code in _exit_codes(point)]
        if not exits or len(set(exits)) == 1:
            yield LeftProgram(rank, exits[:1] == [True], last.file, last.line, last.text)


def _only_ends(state: State, flow: ProgramFlow) -> bool:
    """Neither this statement nor what it calls communicates, as far as the source shows all of it."""
    called = flow.op_at(state)
    if called is not None and called.kind is not ApiKind.TEARDOWN:
        return False
    _, point, index = state
    begun = index > 0  # a statement to which a call has returned
    calls = [] if begun else [n for part in point.parts for n in ast.walk(part) if isinstance(n, ast.Call)]
    return all(_is_quiet(call, point.function, flow, frozenset()) for call in calls)


def _is_quiet(call: ast.Call, function: Function, flow: ProgramFlow, inside: frozenset[Function]) -> bool:
    name = last_word(call.func)
    if name in _QUIET or (isinstance(call.func, ast.Name) and hasattr(builtins, name or "")):
        return True
    callees = [f for f in flow.analysis.resolver.callees(call, function).functions if f not in inside]
    return bool(callees) and all(_is_quiet(c, f, flow, inside | {f}) for f in callees for c in f.calls)


def _exit_codes(point: Point) -> Iterator[bool]:
    """Whether each call at this point that ends the process reports a failure."""
    for part in point.parts:
        for call in (n for n in ast.walk(part) if isinstance(n, ast.Call) and ends_process(n)):
            match call.args:
                case []:
                    yield last_word(call.func) == "abort"
                case [ast.Constant(value=code)]:
                    yield code not in {0, None}
                case _:
                    yield False
