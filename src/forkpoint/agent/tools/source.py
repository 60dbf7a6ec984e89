"""The training program: its lines, callers of a function, and why a condition can differ by rank."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from forkpoint.agent.case import Wire, tool
from forkpoint.brief.case import (
    Case,
    Fact,
    QuestionRefused,
    analysis_of,
    answer,
    fact,
    find_module,
    function_of,
    line_of,
    lines_around,
    name_module,
    names,
    place,
)
from forkpoint.source.analysis import Analysis
from forkpoint.source.branches import name_step
from forkpoint.source.bridge import relative
from forkpoint.source.bridge.why import how_caught, how_different
from forkpoint.source.code import Function, Module
from forkpoint.source.syntax import BranchOrLoop, all_arguments, branches_and_loops, own_nodes, shortened, test_of
from forkpoint.source.value import NO_REASONS, Reason, Reasons, Value

# ---------------------------------------------------------------------------------------------------------------------
# The default place.


def place_of_fork(case: Case) -> tuple[str, int] | None:
    sites = case.verdict.sites
    return (sites[0].file, sites[0].line) if sites else None


class PlaceArguments(Wire):
    file: str | None = None
    """Default: the verdict's site."""
    line: int | None = None


def asked_place(case: Case, asked: PlaceArguments) -> tuple[Module, int]:
    place = (asked.file, asked.line) if asked.file is not None and asked.line is not None else place_of_fork(case)
    if place is None:
        raise QuestionRefused("the verdict names no line of source: name a file and a line")
    module = find_module(case, place[0])
    if not 1 <= place[1] <= len(module.lines):
        raise QuestionRefused(f"{case.clean(name_module(case, module))} has {len(module.lines)} lines")
    return module, place[1]


# ---------------------------------------------------------------------------------------------------------------------
# Lines, functions and files of the program.

_MAX_AROUND = 29
_USUAL = 10


class ReadSourceArguments(Wire):
    file: str | None = None
    """Relative to the source root."""
    line: int | None = None
    around: int | None = None
    """Before and after: 10."""


@tool("Lines of the program around a line; without a line the functions of a file, without a file the files.")
def read_source(case: Case, asked: ReadSourceArguments) -> Sequence[Fact]:
    if asked.file is None:
        return answer(_files(case), "name a file")
    module = find_module(case, asked.file)
    if asked.line is None:
        return answer(_outline(case, module), "name a line")
    if not 1 <= asked.line <= len(module.lines):
        raise QuestionRefused(f"{case.clean(name_module(case, module))} has {len(module.lines)} lines")
    around = lines_around(asked.around, _USUAL, _MAX_AROUND)
    shown = range(max(1, asked.line - around), min(len(module.lines), asked.line + around) + 1)
    name = name_module(case, module)
    written = ((number, line_of(module, number)) for number in shown)
    return answer((fact(case, f"{name}:{n}", text) for n, text in written if text.strip()), "ask for fewer lines")


def _files(case: Case) -> Iterator[Fact]:
    """Files that communicate come first."""
    analysis = analysis_of(case)
    talking = {function.module.path for function in analysis.communicating()}
    for module in sorted(analysis.program.modules.values(), key=lambda m: (m.path not in talking, m.path)):
        says = f"{len(module.lines)} lines, {len(module.functions) - 1} functions"
        told = f"{says}; reaches a collective" if module.path in talking else says
        yield fact(case, name_module(case, module), told)
    for note in analysis.program.notes:
        yield fact(case, relative(note.file, case.source), f"not read: {note.text}")


def _outline(case: Case, module: Module) -> Iterator[Fact]:
    reaches = analysis_of(case).communication.reaches
    for function in sorted(module.functions.values(), key=lambda f: (f.line, f.name)):
        reach = reaches.get(function)
        says = f"{function.name}; reaches {reach.api.op}" if reach else function.name
        yield fact(case, f"{name_module(case, module)}:{function.line}", says)


class CallersArguments(Wire):
    function: str | None = None
    """`Trainer.fit`. Default: that of the verdict's site."""
    file: str | None = None


@tool("Who calls a function of the training program, and which functions and collectives it calls.")
def callers(case: Case, asked: CallersArguments) -> Sequence[Fact]:
    function = _find_function(case, asked)
    return answer(
        chain(_itself(case, function), _called_by(case, function), _calls(case, function)), "read_source has the rest"
    )


def _find_function(case: Case, asked: CallersArguments) -> Function:
    program = analysis_of(case).program
    if asked.function is None:
        module, line = asked_place(case, PlaceArguments())
        return function_of(case, module, line)
    modules = program.modules.values() if asked.file is None else (find_module(case, asked.file),)
    known = [function for module in modules for function in module.functions.values()]
    exact = [f for f in known if f.name == asked.function]
    found = exact or [f for f in known if f.short == asked.function]
    if len(found) == 1:
        return found[0]
    if found:
        spelled = [case.clean(f"{f.name} in {place(case, f, f.line)}") for f in found]
        raise QuestionRefused(f"several functions have this name: {names(spelled)}")
    raise QuestionRefused("no such function in the source; read_source with line null lists those of a file")


def _itself(case: Case, function: Function) -> Iterator[Fact]:
    communication = analysis_of(case).communication
    reach = communication.reaches.get(function)
    if reach is None:
        yield fact(case, place(case, function, function.line), f"{function.name}: reaches no known collective")
        return
    way = [place(case, f, call.lineno) for f, call in communication.path(reach)]
    through = f" through {', '.join(way)}" if way else ""
    says = f"{function.name}: reaches {reach.api.op} from line {reach.call.lineno}{through}"
    yield fact(case, place(case, function, function.line), says)


def _called_by(case: Case, function: Function) -> Iterator[Fact]:
    sites = list(analysis_of(case).resolver.call_sites(function))
    for call, caller in sorted(sites, key=lambda site: (site[1].module.path, site[0].lineno, site[0].col_offset)):
        says = f"{caller.name} calls {function.name}: `{_written(call, caller)}`"
        yield fact(case, place(case, caller, call.lineno), says)
    if not sites:
        says = f"no call of {function.name} was found: a library may call it, or a call that cannot be resolved"
        yield fact(case, place(case, function, function.line), says)


def _calls(case: Case, function: Function) -> Iterator[Fact]:
    for call in function.calls:
        says = _tell_call(case, call, function)
        if says is not None:
            yield fact(
                case, place(case, function, call.lineno), f"{function.name} calls `{_written(call, function)}`: {says}"
            )


def _tell_call(case: Case, call: ast.Call, function: Function) -> str | None:
    """None: a library function, about which nothing is known."""
    analysis = analysis_of(case)
    api = analysis.communication.api(call, function)
    if api is not None:
        return f"communicates ({api.kind})"
    callees = analysis.resolver.callees(call, function)
    if not callees.functions:
        return None
    spelled = [f"{f.name} in {place(case, f, f.line)}" for f in callees.functions]
    reach = analysis.communication.reach(call, function)
    comes_to = f", which reaches {reach.api.op}" if reach else ""
    return f"{'' if callees.exact else 'one of '}{', '.join(spelled)}{comes_to}"


def _written(call: ast.Call, function: Function) -> str:
    return shortened(function.module.source(call))


@dataclass(frozen=True, slots=True)
class DecisionPoint:
    """A branch, loop, handler or argument by which ranks can diverge, and what is known about it."""

    function: Function
    node: BranchOrLoop | ast.ExceptHandler | ast.expr
    what: str
    """`decides by`, `loop over`, ..."""
    written: str
    lines: range
    """For a branch, from its keyword to the end of its condition."""
    reasons: Reasons
    equal: bool


@tool(
    "Whether a condition, loop, handler or argument at a line can differ by rank: equal, reasons with their origin, or "
    "unknown; and which communication is inside it."
)
def taint(case: Case, asked: PlaceArguments) -> Sequence[Fact]:
    module, line = asked_place(case, asked)
    function = function_of(case, module, line)
    forks = {node: fork.reasons for fork in case.forks for node in (fork.node, fork.test)}
    found = [
        replace(decision, reasons=decision.reasons | forks.get(decision.node, NO_REASONS))
        for decision in decisions(function, analysis_of(case))
        if line in decision.lines
    ]
    if not found:
        lines = sorted({*_lines_of_decisions(module)}, key=lambda one: (abs(one - line), one))
        near = names([str(one) for one in sorted(lines[:10])])
        raise QuestionRefused(f"no condition, loop or handler begins at this line; the nearest are at {near}")
    return answer((f for decision in found for f in _tell_decision(case, decision)), "ask for another line")


def _lines_of_decisions(module: Module) -> Iterator[int]:
    for function in module.functions.values():
        yield from (node.lineno for node in branches_and_loops(function))
        yield from (node.lineno for node in own_nodes(function.node) if isinstance(node, ast.ExceptHandler))


def decisions(function: Function, analysis: Analysis) -> Iterator[DecisionPoint]:
    """In the function's own body: branches and loops, handlers, other tests (`match`, comprehensions), and arguments of calls
    that communicate.
    """
    heads: set[ast.expr] = set()
    for node in branches_and_loops(function):
        test = test_of(node)
        heads.add(test)
        reasons, _ = how_different(node, test, function, analysis)
        equal = not reasons and analysis.differences.test(test, function).equal
        yield _decision(function, node, test, _word_for(node), Value(reasons, equal=equal))
    for handler in own_nodes(function.node):
        if isinstance(handler, ast.ExceptHandler):
            reasons, _ = how_caught(handler, function, analysis)
            yield _decision(function, handler, handler.type, "catches", Value(reasons))
    for test in analysis.differences.facts(function).tests:
        if test not in heads:
            yield _decision(function, test, test, "decides by", analysis.differences.test(test, function))
    for call in function.calls:
        api = analysis.communication.api(call, function)
        for passed in all_arguments(call) if api is not None else ():
            value = analysis.differences.argument(passed, function)
            what = f"{api.op if api else ''} is passed"
            yield replace(_decision(function, passed, passed, what, value), lines=_lines(call, passed))


def _decision(
    function: Function,
    node: BranchOrLoop | ast.ExceptHandler | ast.expr,
    test: ast.expr | None,
    what: str,
    value: Value,
) -> DecisionPoint:
    written = function.module.source(test) if test is not None else "any exception"
    return DecisionPoint(function, node, what, written, _lines(node, test), value.reasons, value.equal)


def _lines(node: BranchOrLoop | ast.ExceptHandler | ast.expr, test: ast.expr | None) -> range:
    return range(node.lineno, ((test.end_lineno if test is not None else None) or node.lineno) + 1)


def _word_for(node: BranchOrLoop) -> str:
    if isinstance(node, ast.While):
        return "loop while"
    return "loop over" if isinstance(node, ast.For | ast.AsyncFor) else "decides by"


def _tell_decision(case: Case, decision: DecisionPoint) -> Iterator[Fact]:
    where = place(case, decision.function, decision.node.lineno)
    what = f"{decision.what} `{shortened(decision.written)}`"
    if decision.reasons:
        for reason in sorted(decision.reasons, key=lambda r: r.key):
            yield fact(case, where, f"{what}: can differ by rank ({_tell_reason(case, reason)})")
    elif decision.equal:
        yield fact(case, where, f"{what}: equal on all ranks")
    else:
        yield fact(case, where, f"{what}: unknown; the source shows neither that it differs nor that it is equal")
    yield from _guarded(case, decision, where)


def _tell_reason(case: Case, reason: Reason) -> str:
    module = analysis_of(case).program.modules.get(reason.file)
    file = name_module(case, module) if module is not None else reason.file
    return f"origin {reason.origin}, {reason.strength}: `{reason.expression}` at {file}:{reason.line}: {reason.text}"


def _guarded(case: Case, decision: DecisionPoint, where: str) -> Iterator[Fact]:
    """The communication inside it."""
    node = decision.node
    if not isinstance(node, ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler):
        return
    arms = {"inside": node.body, "in its else": [] if isinstance(node, ast.ExceptHandler) else node.orelse}
    for arm, statements in arms.items():
        steps = analysis_of(case).branches.steps(statements, decision.function)
        if statements:
            told = [f"{name_step(step)} (line {step.call.lineno})" for step in steps]
            yield fact(case, where, f"{arm}: {names(told) if told else 'nothing that reaches a collective'}")
