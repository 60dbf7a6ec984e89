"""Leads for a rank that left no stack: how far it came according to its log, and what lies between there and the call
of its peers.

A stack says where a rank is. Without one, an engineer takes the last line that the rank printed and the call in which
its peers failed, and reads what the program runs between the two. Every sentence says what is known, and which line of
which log shows it.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.model.frames import short_name
from forkpoint.model.incident import Incident
from forkpoint.model.log import LogKind
from forkpoint.model.verdict import Cause, Verdict
from forkpoint.model.world import name_ranks
from forkpoint.source.bridge.fork import Fork, ForkKind, Weighed
from forkpoint.source.bridge.places import CallPlace
from forkpoint.source.bridge.search import ProgramFlow
from forkpoint.source.bridge.separate import find_missing, weigh
from forkpoint.source.bridge.sides import Chain, CodeLine, ForkSide, Sides, loops_left
from forkpoint.source.bridge.waits import find_waits
from forkpoint.source.bridge.why import (
    how_different,
    place_fork,
    tell_condition,
)
from forkpoint.source.bridge.words import Spoken, find_odd, read_words, stack_of
from forkpoint.source.code import Function
from forkpoint.source.resolve import callees_below
from forkpoint.source.syntax import (
    Loop,
    all_arguments,
    enclosing,
    last_word,
    names_in,
    shortened,
    test_of,
)

_SHOWN = 60
_DEPTH = 4
"""Levels of calls to follow."""
_ONLY, _ONE_OF_SOME = 0.8, 0.4
"""The only such place in what the rank ran, or one of several."""
_DEEPER = 0.97
_PRINTED_ODD, _PRINTED_THERE = 0.85, 0.95
_LEFT = 0.7
_OWN_LINE = 0.75
_READ, _JOINS = 0.6, 0.3
_STALLS = (Cause.HOST_STALL, Cause.STRAGGLER)
_READS = frozenset({"read", "read_text", "readlines", "load", "loads", "safe_load", "open", "getenv"})


def find_leads(incident: Incident, verdict: Verdict, places: list[CallPlace], flow: ProgramFlow) -> Iterator[Weighed]:
    """For a verdict, or for what a hypothesis assumes. Empty if the suspects' own stacks say more."""
    peers = next((p for p in places if not set(p.ranks) & set(verdict.suspects)), None)
    words = read_words(incident.capture, flow)
    last = next((words[r][-1] for r in verdict.suspects if words.get(r)), None)
    if verdict.cause in {Cause.NEVER_JOINED, Cause.SILENT_CORRUPTION}:
        yield from _printed_otherwise(words, verdict, flow)
    if verdict.cause is Cause.NEVER_JOINED:
        yield from _joining(places, flow)
    whole = not incident.capture.cut_logs
    if verdict.cause is Cause.DIVERGENT_PATH and peers is not None and last is not None and whole:
        yield from _left_behind(last, peers, words, verdict, flow)
    waited_for = verdict.cause in _STALLS or (verdict.cause is Cause.RANK_LOST and _were_waited_for(incident, verdict))
    if verdict.cause in _STALLS and last is not None:
        yield from _own_line(last, words, verdict, flow)
    if peers is not None and waited_for and _say_nothing(incident, verdict):
        yield from _holding(peers, verdict, flow)


def _own_line(last: Spoken, words: dict[int, list[Spoken]], verdict: Verdict, flow: ProgramFlow) -> Iterator[Weighed]:
    """Where the suspects printed their last line, if no other rank ever prints it: they were at work of their own."""
    others = (said for rank, said in words.items() if rank not in verdict.suspects)
    if any(one.message is last.message for said in others for one in said):
        return
    told = f'{name_ranks(verdict.suspects, 2)} printed "{shortened(last.text, _SHOWN)}" here, and no other rank did'
    place = CodeLine(last.message.function, last.message.call.lineno)
    fork = place_fork(ForkKind.HELD, place, flow.places, told, None)
    yield from [Weighed(fork, _OWN_LINE)] if fork is not None else []


def _say_nothing(incident: Incident, verdict: Verdict) -> bool:
    """Nothing in the logs says why they stopped: none of them raised, crashed or failed in a call. A kill explains
    nothing.
    """
    said = [event for rank in verdict.suspects for event in incident.said.get(rank, ())]
    return bool(verdict.suspects) and not any(e.is_failure and e.kind is not LogKind.KILLED for e in said)


def _were_waited_for(incident: Incident, verdict: Verdict) -> bool:
    """Some peer waited for its whole timeout. If a process ends, its connections close at once and nobody waits."""
    limits = {LogKind.PEER_TIMEOUT, LogKind.WATCHDOG_TIMEOUT}
    return any(e.kind in limits and e.rank not in verdict.suspects for e in incident.capture.events)


# ---------------------------------------------------------------------------------------------------------------------
# What a rank ran on the way to a call: the round of the surrounding loop, with everything that it calls.


def _way_to(chain: Chain, flow: ProgramFlow) -> Iterator[tuple[Function, range, int]]:
    """Functions with the lines that run in them and their call depth, from the surrounding loop, or the start, to the
    call.
    """
    seen: set[Function] = set()
    for place in reversed(chain):
        function = place.function
        loops = [n for n in enclosing(place.line, function) if isinstance(n, Loop)]
        first = loops[-1].lineno if loops else function.line
        until = (loops[-1].end_lineno or place.line) if loops else place.line
        lines = range(first, until + 1)
        yield function, lines, 0
        for callee, level in callees_below(lines, function, flow.analysis.resolver, _DEPTH):
            if callee not in seen:
                seen.add(callee)
                yield callee, range(callee.line, (callee.node.body[-1].end_lineno or callee.line) + 1), level
        if loops:
            return


def _holding(peers: CallPlace, verdict: Verdict, flow: ProgramFlow) -> Iterator[Weighed]:
    """Waits without a limit, for something outside the job."""
    found = {
        (function, line): (what, level)
        for function, lines, level in _way_to(peers.chain, flow)
        for line, what in find_waits(function, flow.analysis)
        if line in lines
    }
    who, call = name_ranks(verdict.suspects, 2), _call_of(peers)
    only = "the only wait without a limit" if len(found) == 1 else "a wait without a limit"
    for (function, line), (what, level) in found.items():
        told = f"{only} that {who} runs on the way to {call}: {what}"
        fork = place_fork(ForkKind.HELD, CodeLine(function, line), flow.places, told, None)
        if fork is not None:
            yield Weighed(fork, (_ONLY if len(found) == 1 else _ONE_OF_SOME) * _DEEPER**level)


def _call_of(place: CallPlace) -> str:
    at = place.chain[-1]
    return f"the call at {short_name(at.function.module.path)}:{at.line}"


# ---------------------------------------------------------------------------------------------------------------------
# What the last line of a rank's log shows.


def _left_behind(
    last: Spoken, peers: CallPlace, words: dict[int, list[Spoken]], verdict: Verdict, flow: ProgramFlow
) -> Iterator[Weighed]:
    """Loops that the peers were in when the suspects had already printed a line that comes after them, and no peer had."""
    times = {rank: sum(s.message is last.message for s in said) for rank, said in words.items()}
    own = max(times.get(rank, 0) for rank in verdict.suspects)
    if any(times.get(rank, 0) >= own for rank in peers.failed) or not peers.failed:
        return
    who, others = name_ranks(verdict.suspects, 2), name_ranks(peers.failed, 2)
    printed = f'{who} had printed "{shortened(last.text, _SHOWN)}", which comes after it'
    for node, function in loops_left(flow.places.chain(stack_of(last, flow)), peers.chain):
        reasons, differs = how_different(node, test_of(node), function, flow.analysis)
        over = tell_condition(test_of(node), function)
        told = f"{who} had left the loop over {over}, and {others} ran another round: {printed}"
        yield Weighed(
            Fork(ForkKind.LOOP, function, node, test_of(node), reasons, None, None, 0.0, told), max(differs, _LEFT)
        )
        return


def find_taken(incident: Incident, verdict: Verdict, places: list[CallPlace], flow: ProgramFlow) -> Iterator[Weighed]:
    """The branch in which the suspects printed their last line, and which skips the call of their peers."""
    suspects = verdict.suspects
    if not any(way.rank in suspects for way in incident.capture.source.other_ways):
        return
    words = read_words(incident.capture, flow)
    last = next((words[r][-1] for r in suspects if words.get(r)), None)
    if last is None:
        return
    for place in places:
        if not set(suspects).isdisjoint(place.ranks):
            continue
        usual = ForkSide(place.ranks, place.cohort, None, place.stack, None, None, recorded=False)
        odd = ForkSide(suspects, None, None, stack_of(last, flow), None, None, recorded=False)
        for separation in find_missing(place.chain, flow):
            turn = separation.odd
            if turn is not None and not isinstance(turn.node, Loop) and last.is_printed_in(turn.block):
                weighed = weigh(separation, Sides(usual, odd, ()), flow.analysis)
                printed = f'{weighed.fork.sentence}; there it printed "{shortened(last.text, _SHOWN)}"'
                yield Weighed(replace(weighed.fork, sentence=printed), max(weighed.weight, _PRINTED_THERE))


def _printed_otherwise(words: dict[int, list[Spoken]], verdict: Verdict, flow: ProgramFlow) -> Iterator[Weighed]:
    found = list(find_odd(words, verdict.suspects))
    for odd in found if len({one.ranks for one in found}) == 1 else ():
        own, usual = (shortened(text, _SHOWN) for text in (odd.own.text, odd.usual))
        told = f'{name_ranks(odd.ranks, 2)} printed "{own}" here, all others "{usual}"'
        at = CodeLine(odd.own.message.function, odd.own.message.call.lineno)
        fork = place_fork(ForkKind.ARGUMENT, at, flow.places, told, None)
        if fork is not None:
            yield Weighed(fork, _PRINTED_ODD)


# ---------------------------------------------------------------------------------------------------------------------
# Ranks that never came to the job.


def _joining(places: list[CallPlace], flow: ProgramFlow) -> Iterator[Weighed]:
    """The call that joins the job, and where its address is read."""
    for place in places[:1]:
        at = place.chain[-1]
        call = place_fork(ForkKind.HELD, at, flow.places, "ranks join the job here", place.cohort)
        if call is not None:
            yield Weighed(call, _JOINS)
        for line in dict.fromkeys(_read_at(place.chain, flow)):
            told = f"what ranks join the job with in {_call_of(place)} is read here, and may differ between hosts"
            fork = place_fork(ForkKind.ARGUMENT, line, flow.places, told, place.cohort)
            if fork is not None:
                yield Weighed(fork, _READ)


def _read_at(chain: Chain, flow: ProgramFlow) -> Iterator[CodeLine]:
    """Where functions read files or variables, if their result becomes an argument of the innermost call."""
    for place in reversed(chain):
        function = place.function
        calls = [c for c in function.calls if c.lineno <= place.line <= (c.end_lineno or c.lineno)]
        given = [argument for call in calls for argument in all_arguments(call)]
        for made in (n for value in _made_of(given, function) for n in ast.walk(value) if isinstance(n, ast.Call)):
            for callee in flow.analysis.resolver.callees(made, function).functions:
                yield from _reading(callee)


def _made_of(given: list[ast.expr], function: Function) -> list[ast.expr]:
    """These expressions, and all values assigned in this function to the names in them."""
    found, names = list(given), set[str]()
    for value in found:
        new, names = names_in(value) - names, names | names_in(value)
        sets = [node for node in function.own.assignments if isinstance(node, ast.Assign)]
        found.extend(node.value for node in sets if any(new & names_in(target) for target in node.targets))
    return found


def _reading(function: Function) -> Iterator[CodeLine]:
    """The last line that reads: a later value overrides an earlier one."""
    lines = [call.lineno for call in function.calls if last_word(call.func) in _READS]
    lines += [
        node.lineno for node in ast.walk(function.node) if isinstance(node, ast.Attribute) and node.attr == "environ"
    ]
    if lines:
        yield CodeLine(function, max(lines))
