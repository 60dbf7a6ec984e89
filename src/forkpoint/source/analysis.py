"""Program -> Analysis: everything that rules and the bridge ask of source, in one place."""

from collections.abc import Iterator
from dataclasses import dataclass

from forkpoint.source.branches import Ways
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
    ways: Ways

    def communicating(self) -> Iterator[Function]:
        """Functions in which a collective may happen, in the order of files and lines."""
        for function in self.program.functions():
            if function in self.communication.reaches:
                yield function


def analyse(program: Program) -> Analysis:
    resolver = Resolver(program)
    communication = Communication(program, resolver)
    differences = Differences(program, resolver, communication)
    return Analysis(program, resolver, communication, differences, Ways(communication))
