"""Stack frames -> lines of the source that was given."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from forkpoint.model.frames import bare_name, short_name, user_frames
from forkpoint.model.op import Frame, Stack
from forkpoint.source.code import Function
from forkpoint.source.flow import ControlFlow, Point
from forkpoint.source.program import Program

_PART_OF_FUNCTION = frozenset({"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>"})


@dataclass(frozen=True, slots=True)
class CodeLine:
    function: Function
    line: int


Chain = tuple[CodeLine, ...]
"""The user frames of a stack, outermost first, whose files are part of the source."""


@dataclass(slots=True, eq=False)
class StackMap:
    """The chain of every stack, and the control flow of every function, computed once."""

    program: Program
    notes: dict[str, None] = field(default_factory=dict)
    """Frames that the source does not match, in the order they were found."""
    misfits: set[str] = field(default_factory=set)
    """Files whose version differs from the one that ran."""
    _flows: dict[Function, ControlFlow] = field(default_factory=dict)
    _chains: dict[Stack, Chain] = field(default_factory=dict)

    def flow(self, function: Function) -> ControlFlow:
        if function not in self._flows:
            self._flows[function] = ControlFlow(function)
        return self._flows[function]

    def chain(self, stack: Stack | None) -> Chain:
        stack = stack or ()
        if stack not in self._chains:
            found = [p for f in reversed(user_frames(stack)) if (p := self._place(f))]
            # A comprehension has a frame of its own, on the same line as the function around it.
            merged = [
                p
                for i, p in enumerate(found)
                if i == 0 or p.function is not found[i - 1].function or p.line != found[i - 1].line
            ]
            self._chains[stack] = tuple(merged)
        return self._chains[stack]

    def points(self, place: CodeLine) -> list[Point]:
        return self.flow(place.function).at(place.line)

    def _place(self, frame: Frame) -> CodeLine | None:
        module = self.program.module_at(frame.filename)
        if module is None:
            self.notes.setdefault(f"{short_name(frame.filename)} appears in the stacks but is not under --source")
            return None
        function = module.function_at(frame.line)
        name = bare_name(frame)
        known = function is not None and (name in {function.short, *_PART_OF_FUNCTION})
        if function is None or not known or not self.flow(function).at(frame.line):
            self.notes.setdefault(
                f"line {frame.line} of {short_name(frame.filename)} in the stacks does not match the file under --source"
            )
            self.misfits.add(module.path)
            return None
        return CodeLine(function, frame.line)


def outermost(chains: Iterable[Chain]) -> Function | None:
    """The function in which all chains start, if it is the same."""
    roots = {chain[0].function for chain in chains if chain}
    return roots.pop() if len(roots) == 1 else None
