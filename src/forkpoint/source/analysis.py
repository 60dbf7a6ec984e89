"""Program -> Analysis: everything that rules, remedies and the bridge ask about source."""

from collections.abc import Iterator
from dataclasses import dataclass

from forkpoint.source.branches import Branches
from forkpoint.source.code import Function
from forkpoint.source.communicates import Communication
from forkpoint.source.differs import Differences
from forkpoint.source.program import Program
from forkpoint.source.resolve import Resolver


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    program: Program
    resolver: Resolver
    communication: Communication
    differences: Differences
    branches: Branches

    def communicating(self) -> Iterator[Function]:
        """Functions in which a collective may happen, by file and line."""
        for function in self.program.functions():
            if function in self.communication.reaches:
                yield function


def analyse(program: Program) -> Analysis:
    resolver = Resolver(program)
    communication = Communication(program, resolver)
    differences = Differences(program, resolver, communication)
    return Analysis(program, resolver, communication, differences, Branches(communication))
