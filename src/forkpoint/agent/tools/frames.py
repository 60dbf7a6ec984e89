"""Stacks in facts: the user's frames one by one, those of libraries folded."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tools.answers import fact
from forkpoint.agent.tools.sources import line_of, name_module
from forkpoint.model.frames import is_library, short_name
from forkpoint.model.op import Frame, Stack

MAX_FRAMES = 200
"""A recursion can be deeper; what is further out is the same on all ranks more often than not."""


def tell_frame(case: Case, frame: Frame) -> str:
    """`train.py:37 main: `loss = step(batch)``: named as under the source root, with its text, where that is known."""
    module = case.analysis.program.module_at(frame.filename) if case.analysis is not None else None
    if module is None:
        return f"{frame.filename}:{frame.line} {frame.name}"
    return f"{name_module(case, module)}:{frame.line} {frame.name}: `{line_of(module, frame.line).strip()}`"


def tell_stack(case: Case, where: str, frames: Sequence[Frame], whose: str) -> Iterator[Fact]:
    """In the order given. Of a run of library frames the first is named."""
    for library, run in groupby(frames[:MAX_FRAMES], is_library):
        held = list(run)
        if library:
            inner = held[0]
            more = f" and {len(held) - 1} more of libraries" if len(held) > 1 else ""
            yield fact(case, where, f"{whose}: {short_name(inner.filename)}:{inner.line} {inner.name}{more}")
        else:
            yield from (fact(case, where, f"{whose}: {tell_frame(case, frame)}") for frame in held)


def outermost_first(stack: Stack) -> tuple[Frame, ...]:
    return stack[:MAX_FRAMES][::-1]
