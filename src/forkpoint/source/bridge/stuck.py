"""Where one rank is stuck, or where it raised an exception and left."""

import ast
from collections.abc import Iterator

from forkpoint.model.frames import in_side_thread, place_of, user_frames
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Verdict
from forkpoint.model.world import name_ranks
from forkpoint.source.bridge.fork import Fork, ForkKind, Weighed
from forkpoint.source.bridge.search import ProgramFlow
from forkpoint.source.bridge.sides import Chain, CodeLine, live_of, raised_by
from forkpoint.source.bridge.waits import find_waits
from forkpoint.source.bridge.why import NOT_SHOWN, decision_fork, place_fork, tell_condition, tell_decision
from forkpoint.source.code import Function
from forkpoint.source.resolve import callees_below
from forkpoint.source.syntax import branches_and_loops, enclosing, spans, test_of

# ---------------------------------------------------------------------------------------------------------------------
# Where one rank is stuck: its live stack, or the code between its last call and the one that the others wait in.

_ABOVE = 0.8
"""The branch that led the rank there explains it; the frame itself is more certain."""
_DEEPER = 0.9
"""Per level of calls: what is nearer to the line is more likely the cause."""
_LOADER = "/torch/utils/data/dataloader.py"
_LOADED = 1.1
"""If the program has one dataset, the loader waits for its items: that says more than the line that asks the loader."""
_DEPTH = 3
_THE_CALL = 0.4
"""The call that does not finish, if nothing shows why."""


def find_held(incident: Incident, verdict: Verdict, flow: ProgramFlow) -> Iterator[Weighed]:
    """From a live stack: the frame, and the decisions above it that can differ by rank."""
    cohort = _cohort_of(verdict)
    stack = live_of(verdict.suspects, incident)
    chain = flow.places.chain(stack)
    if not chain:
        return
    who, is_one = name_ranks(verdict.suspects, 2), len(verdict.suspects) == 1
    above = list(find_above(chain, who, cohort, flow))
    under = _under(above[0].fork, chain) if above else ""
    where = "in a library called from here" if flow.places.outside(stack) else "here"
    told = f"{who} {'is' if is_one else 'are'} stuck {where}{under}"
    frame = place_fork(ForkKind.HELD, chain[-1], flow.places, told, cohort)
    if frame is not None:
        yield Weighed(frame, 1.0)
    if any(place_of(f).endswith(_LOADER) for f in stack or ()):
        told = f"{who} {'waits' if is_one else 'wait'} for a data loader, which runs this"
        for place, what in _loading(flow):
            fork = place_fork(ForkKind.HELD, place, flow.places, f"{told}{what}", cohort)
            yield from [Weighed(fork, _LOADED)] if fork is not None else []
    yield from above


def _loading(flow: ProgramFlow) -> list[tuple[CodeLine, str]]:
    """Where the program's one dataset reads an item, or the wait without a limit in what that runs."""
    items = [
        function
        for function in flow.analysis.program.functions()
        if function.owner is not None and function.short in {"__getitem__", "__iter__"}
        if any(str(name).endswith("Dataset") for name in flow.analysis.resolver.ancestors(function.owner))
    ]
    if len(items) != 1:
        return []
    whole = range(items[0].line, (items[0].body[-1].end_lineno or 0) + 1)
    run = [items[0], *(f for f, _ in callees_below(whole, items[0], flow.analysis.resolver, _DEPTH))]
    waits = [(CodeLine(f, line), f": {what}") for f in run for line, what in find_waits(f, flow.analysis)]
    return waits if len(waits) == 1 else [(CodeLine(items[0], items[0].body[0].lineno), "")]


def find_above(chain: Chain, who: str, cohort: int | None, flow: ProgramFlow) -> Iterator[Weighed]:
    """Decisions around the frames that can differ by rank, innermost first."""
    for depth, place in enumerate(reversed(chain)):
        for node in enclosing(place.line, place.function):
            told = f"{tell_decision(node, place.line, who, place.function)}, which can differ by rank"
            fork, differs = decision_fork(node, place.function, flow.analysis, told, cohort)
            if differs > NOT_SHOWN:
                yield Weighed(fork, differs * _ABOVE * _DEEPER**depth)


def _under(decision: Fork, chain: Chain) -> str:
    """`, under `rank == 0``: the decision around the line, and its outcome."""
    condition = tell_condition(decision.test, decision.function)
    line = next(place.line for place in reversed(chain) if place.function is decision.function)
    if isinstance(decision.node, ast.If) and spans(decision.node.orelse, line):
        return f", where {condition} was false"
    return f", under {condition}"


def find_between(before: Chain, now: Chain, verdict: Verdict, flow: ProgramFlow) -> Iterator[Weighed]:
    """Decisions that can differ, in code that runs between the last call and this one; and the call itself."""
    if not now:
        return
    cohort, who = _cohort_of(verdict), name_ranks(verdict.suspects, 2) if verdict.suspects else "a rank"
    place = now[-1]
    call = place_fork(ForkKind.HELD, place, flow.places, "this call does not finish", cohort)
    if call is not None:
        yield Weighed(call, _THE_CALL)
    for near, function, level in _between(before, place, flow):
        for node in branches_and_loops(function):
            if level == 0 and not near.start <= node.lineno < near.stop:
                continue
            condition = tell_condition(test_of(node), function)
            sentence = f"depending on {condition}, {who} can do something else before the call"
            fork, differs = decision_fork(node, function, flow.analysis, sentence, cohort)
            if differs > NOT_SHOWN:
                yield Weighed(fork, differs * _DEEPER**level)


def _between(before: Chain, place: CodeLine, flow: ProgramFlow) -> Iterator[tuple[range, Function, int]]:
    """The lines from the function's last call (or the surrounding loop) to this one, and the functions that they run."""
    function = place.function
    last = [p.line for p in before if p.function is function and p.line < place.line]
    outermost = [n.lineno for n in enclosing(place.line, place.function)][-1:]
    start = max([*last, *outermost], default=function.line)
    lines = range(start, place.line + 1)
    yield lines, function, 0
    for callee, level in callees_below(lines, function, flow.analysis.resolver, _DEPTH):
        yield lines, callee, level


def _cohort_of(verdict: Verdict) -> int | None:
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    return next((i for i, c in enumerate(cohorts) if set(c.ranks) & set(verdict.suspects)), None)


# ---------------------------------------------------------------------------------------------------------------------
# Where a rank raised an exception and left: the frames of the traceback in its log.

_RAISED = 0.5
"""An exception is the last thing that happened, and may be a consequence of the cause."""
_UP = 0.8
_FRAMES = 2
"""Of the traceback: the function that raised, and its caller."""


def find_raised(incident: Incident, verdict: Verdict, flow: ProgramFlow) -> Iterator[Weighed]:
    event = raised_by(verdict.suspects, incident)
    chain = flow.places.chain(event.stack) if event else ()
    if event is None or not chain:
        return
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    cohort = next((i for i, c in enumerate(cohorts) if set(c.ranks) & set(verdict.suspects)), None)
    who, what = name_ranks(verdict.suspects, 2), (event.exception or event.text).partition(":")[0]
    thread, weight, innermost = in_side_thread(event.stack), _RAISED, next(iter(user_frames(event.stack)), None)
    for place in chain[: -_FRAMES - 1 : -1]:
        at = innermost is not None and place is chain[-1] and flow.places.chain((innermost,))[-1:] == (place,)
        where = "here" if at else "in a call from here"
        told = f"{who} raised {what} {where} and left the other ranks"
        if thread:
            told = f"a thread of {who} raised {what} {where} and ended"
        fork = place_fork(ForkKind.THREAD if thread else ForkKind.RAISED, place, flow.places, told, cohort)
        if fork is not None:
            yield Weighed(fork, weight)
        for node in enclosing(place.line, place.function):
            told = tell_decision(node, place.line, who, place.function)
            branch, differs = decision_fork(node, place.function, flow.analysis, told, cohort)
            if differs > NOT_SHOWN:
                yield Weighed(branch, differs * weight)
        weight *= _UP
