"""Stacks as places in the source that was given."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from forkpoint.bridge.flow import Flow, Spot
from forkpoint.model.frames import bare_name, short_name, user_frames
from forkpoint.model.op import Frame, Stack
from forkpoint.source.code import Function, Module
from forkpoint.source.program import Program

_PART_OF_FUNCTION = frozenset({"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>"})


@dataclass(frozen=True, slots=True)
class Place:
    function: Function
    line: int


Chain = tuple[Place, ...]
"""The user's frames of a stack, outermost first, as far as their files are among the source."""


@dataclass(slots=True, eq=False)
class Places:
    """Every function's flow and every stack's chain, made once."""

    program: Program
    notes: dict[str, None] = field(default_factory=dict)
    """What of the stacks the source does not fit, in the order of finding it."""
    misfits: set[str] = field(default_factory=set)
    """Files that are of another version."""
    _flows: dict[Function, Flow] = field(default_factory=dict)
    _chains: dict[Stack, Chain] = field(default_factory=dict)

    def flow(self, function: Function) -> Flow:
        if function not in self._flows:
            self._flows[function] = Flow(function)
        return self._flows[function]

    def chain(self, stack: Stack | None) -> Chain:
        stack = stack or ()
        if stack not in self._chains:
            found = [p for f in reversed(user_frames(stack)) if (p := self._place(f))]
            # A comprehension's own frame stands on the line of the function it is part of.
            merged = [
                p
                for i, p in enumerate(found)
                if i == 0 or p.function is not found[i - 1].function or p.line != found[i - 1].line
            ]
            self._chains[stack] = tuple(merged)
        return self._chains[stack]

    def spots(self, place: Place) -> list[Spot]:
        return self.flow(place.function).at(place.line)

    def _place(self, frame: Frame) -> Place | None:
        module = self.program.module_at(frame.filename)
        if module is None:
            self.notes.setdefault(f"{short_name(frame.filename)}, which is in the stacks, is not under --source")
            return None
        function = function_at(module, frame.line)
        name = bare_name(frame)
        known = function is not None and (name in {function.short, *_PART_OF_FUNCTION})
        if function is None or not known or not self.flow(function).at(frame.line):
            self.notes.setdefault(
                f"the source under --source does not fit line {frame.line} of {short_name(frame.filename)}"
            )
            self.misfits.add(module.path)
            return None
        return Place(function, frame.line)


def function_at(module: Module, line: int) -> Function | None:
    """The innermost function whose body holds the line."""
    inside = [f for f in module.functions.values() if f.body and f.name != "<module>" and _holds(f, line)]
    if inside:
        return max(inside, key=lambda f: f.line)
    return module.top if line <= len(module.lines) else None


def _holds(function: Function, line: int) -> bool:
    return function.body[0].lineno <= line <= (function.body[-1].end_lineno or 0)


def outermost(chains: Iterable[Chain]) -> Function | None:
    """The function in which all of them begin."""
    roots = {chain[0].function for chain in chains if chain}
    return roots.pop() if len(roots) == 1 else None
