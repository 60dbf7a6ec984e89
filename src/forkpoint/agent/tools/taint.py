"""Why a condition can differ by rank."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import answer, fact, names
from forkpoint.agent.tools.sources import analysis_of, find_module, function_of, name_module, place
from forkpoint.agent.wire import Wire
from forkpoint.bridge.why import how_caught, how_different
from forkpoint.source.analysis import Analysis
from forkpoint.source.code import Function, Module
from forkpoint.source.syntax import BranchOrLoop, all_arguments, branches_and_loops, own_nodes, shortened, test_of
from forkpoint.source.tell import name_step
from forkpoint.source.value import NO_REASONS, Reason, Reasons, Value


class Arguments(Wire):
    file: str
    """As under the source root."""
    line: int
    """Of a condition, a loop, an `except`, or a call that communicates."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Something in a function by which ranks can part, and what is known of it."""

    function: Function
    node: BranchOrLoop | ast.ExceptHandler | ast.expr
    what: str
    """`decides by`, `loop over`, ..."""
    written: str
    lines: range
    """On which it is decided: of a branch from its keyword to the end of its condition."""
    reasons: Reasons
    equal: bool


def taint(case: Case, asked: Arguments) -> Sequence[Fact]:
    module = find_module(case, asked.file)
    function = function_of(case, module, asked.line)
    forks = {node: fork.reasons for fork in case.forks for node in (fork.node, fork.test)}
    found = [
        replace(decision, reasons=decision.reasons | forks.get(decision.node, NO_REASONS))
        for decision in decisions(function, analysis_of(case))
        if asked.line in decision.lines
    ]
    if not found:
        lines = sorted({*_lines_of_decisions(module)}, key=lambda line: (abs(line - asked.line), line))
        near = names([str(line) for line in sorted(lines[:10])])
        raise Refused(f"no condition, loop or handler begins at this line; the nearest are at {near}")
    return answer((f for decision in found for f in _tell(case, decision)), "ask for another line")


def _lines_of_decisions(module: Module) -> Iterator[int]:
    for function in module.functions.values():
        yield from (node.lineno for node in branches_and_loops(function))
        yield from (node.lineno for node in own_nodes(function.node) if isinstance(node, ast.ExceptHandler))


def decisions(function: Function, analysis: Analysis) -> Iterator[Decision]:
    """Of the function's own body: branches and loops, handlers, what else decides (`match`, comprehensions), and what is
    passed to calls that communicate.
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
) -> Decision:
    written = function.module.source(test) if test is not None else "any exception"
    return Decision(function, node, what, written, _lines(node, test), value.reasons, value.equal)


def _lines(node: BranchOrLoop | ast.ExceptHandler | ast.expr, test: ast.expr | None) -> range:
    return range(node.lineno, ((test.end_lineno if test is not None else None) or node.lineno) + 1)


def _word_for(node: BranchOrLoop) -> str:
    if isinstance(node, ast.While):
        return "loop while"
    return "loop over" if isinstance(node, ast.For | ast.AsyncFor) else "decides by"


def _tell(case: Case, decision: Decision) -> Iterator[Fact]:
    where = place(case, decision.function, decision.node.lineno)
    what = f"{decision.what} `{shortened(decision.written)}`"
    if decision.reasons:
        for reason in sorted(decision.reasons, key=lambda r: r.key):
            yield fact(case, where, f"{what}: can differ by rank ({_tell_reason(case, reason)})")
    elif decision.equal:
        yield fact(case, where, f"{what}: equal on all ranks")
    else:
        yield fact(case, where, f"{what}: not known; the source shows neither that it differs nor that it is equal")
    yield from _guarded(case, decision, where)


def _tell_reason(case: Case, reason: Reason) -> str:
    module = analysis_of(case).program.modules.get(reason.file)
    file = name_module(case, module) if module is not None else reason.file
    return f"origin {reason.origin}, {reason.strength}: `{reason.expression}` at {file}:{reason.line}: {reason.text}"


def _guarded(case: Case, decision: Decision, where: str) -> Iterator[Fact]:
    """What communicates inside it."""
    node = decision.node
    if not isinstance(node, ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler):
        return
    arms = {"inside": node.body, "in its else": [] if isinstance(node, ast.ExceptHandler) else node.orelse}
    for arm, statements in arms.items():
        steps = analysis_of(case).branches.steps(statements, decision.function)
        if statements:
            told = [f"{name_step(step)} (line {step.call.lineno})" for step in steps]
            yield fact(case, where, f"{arm}: {names(told) if told else 'nothing that comes to a collective'}")


TOOL = Tool(
    name="taint",
    description=(
        "What makes the condition, loop or handler at a line, or what is passed to a collective there, differ by rank: `equal`, "
        "reasons with their origin and line, or `not known`; and which communication stands inside it."
    ),
    arguments=Arguments,
    answer=taint,
)
