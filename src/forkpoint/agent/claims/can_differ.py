"""A condition can differ by rank, because of where its value comes from.

| what the source shows of the value | is |
|---|---|
| it comes from something of that origin; of a `for`, how many or in which order | supported |
| it is a constant, or a collective made it equal on all ranks | contradicted |
| nothing, or another origin; no source, no such line, nothing that decides on it | unverifiable |

A handler's origin is `exception`, or that of the condition under which what it catches is raised.
"""

import ast
from typing import Annotated, Literal

from pydantic import Field

from forkpoint.agent.case import Case, Check, Claim, Status
from forkpoint.agent.claims.guards import Line, deciding_at, find_line, whole_decisions
from forkpoint.agent.naming import fact, named, number
from forkpoint.source.apis import Origin
from forkpoint.source.branches import tell_reason
from forkpoint.source.bridge.why import how_caught, how_different
from forkpoint.source.syntax import DecidingNode, tests_of
from forkpoint.source.value import NO_REASONS, Reasons


class CanDiffer(Claim):
    """Why a condition, or how often a loop runs, can differ by rank."""

    kind: Literal["can-differ"]
    file: str
    line: int
    """Of the condition, the loop or the handler."""
    because: Annotated[Origin, Field(strict=False)]

    def sentence(self) -> str:
        return f"what {named(self.file)} line {number(self.line)} decides can differ by rank ({self.because.value})"

    def check(self, case: Case) -> Check:
        line = find_line(self.file, self.line, case)
        if isinstance(line, Check):
            return line
        nodes = whole_decisions(deciding_at(line))
        if not nodes:
            return Check.unverifiable(f"nothing is decided on {case.clean(str(line))}")
        told_by_forks = [fork.reasons for fork in case.forks if fork.node in nodes]
        reasons: Reasons = NO_REASONS.union(*told_by_forks, *(_reasons(node, line) for node in nodes))
        fitting = [r for r in reasons if r.origin is self.because]
        told = sorted(fitting or reasons, key=lambda r: r.key)
        facts = tuple(fact(case, str(line), tell_reason(r)) for r in told)
        if fitting:
            return Check(Status.SUPPORTED, f"the source shows it: {facts[0].says}", facts)
        if reasons:
            origins = ", ".join(sorted({r.origin.value for r in reasons}))
            return Check(Status.UNVERIFIABLE, f"the source does not show that, but: {origins}", facts)
        if all(_is_equal(node, line) for node in nodes):
            return Check(Status.CONTRADICTED, "the source shows that it is the same on all ranks")
        return Check.unverifiable("the source does not show why it could differ, nor that it cannot")


def _reasons(node: DecidingNode, line: Line) -> Reasons:
    if isinstance(node, ast.ExceptHandler):
        return how_caught(node, line.function, line.analysis)[0]
    values = [line.analysis.differences.test(test, line.function) for test in tests_of(node)]
    if isinstance(node, ast.For | ast.AsyncFor):
        # What it goes over may differ in each element: that alone changes neither its rounds nor their order.
        rounds, _ = how_different(node, node.iter, line.function, line.analysis)
        return rounds.union(*(value.extent for value in values))
    return NO_REASONS.union(*(value.reasons for value in values))


def _is_equal(node: DecidingNode, line: Line) -> bool:
    tests = tests_of(node)
    return bool(tests) and all(
        isinstance(test, ast.Constant) or line.analysis.differences.test(test, line.function).equal for test in tests
    )
