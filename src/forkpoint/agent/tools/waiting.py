"""Who waits for whom, and what every thread of every rank was doing; ranks that did the same share a line."""

from collections.abc import Iterator, Sequence

from forkpoint.agent.case import Tool, Wire
from forkpoint.agent.tools.stacks import StacksArguments, stacks
from forkpoint.brief.case import Case, Fact, QuestionRefused
from forkpoint.brief.naming import answer, fact
from forkpoint.brief.waits import show_waits
from forkpoint.evidence.stacks.shapes import find_shape
from forkpoint.model.frames import line_and_name, user_frames
from forkpoint.model.op import Stack
from forkpoint.model.world import name_ranks

_RANGES = 4

# ---------------------------------------------------------------------------------------------------------------------
# The wait graph.


class WaitsArguments(Wire):
    """None."""


def waits(case: Case, _: WaitsArguments) -> Sequence[Fact]:
    return show_waits(case)


WAITS = Tool(
    name="waits",
    description="The wait graph: who waits in which call, for whom and why, and the cycle if there is one.",
    arguments=WaitsArguments,
    answer=waits,
)


# ---------------------------------------------------------------------------------------------------------------------
# Threads: what each was doing, ranks at the same place together.

_FRAMES = 4


class ThreadsArguments(Wire):
    rank: int | None = None
    """Only this rank, frame by frame, with its recorded call."""


def threads(case: Case, asked: ThreadsArguments) -> Sequence[Fact]:
    if asked.rank is not None:
        return stacks(case, StacksArguments(rank=asked.rank))
    found = answer(_clusters(case), "ask for one rank")
    if not found:
        raise QuestionRefused("no stack was taken while the job hung; table shows the line of each recorded call")
    return found


def _clusters(case: Case) -> Iterator[Fact]:
    together: dict[tuple[bool, str], dict[int, str]] = {}
    for live in case.incident.capture.stacks:
        where = f"{live.file} line {live.line}"
        together.setdefault((False, _tell_place(live.stack)), {})[live.rank] = where
        for _, stack in live.others:
            together.setdefault((True, _tell_place(stack)), {})[live.rank] = where
    for (other, place), ranks in sorted(together.items(), key=lambda item: (item[0][0], -len(item[1]), min(item[1]))):
        what = "another thread" if other else "main thread"
        yield fact(case, ranks[min(ranks)], f"{what} of {name_ranks(ranks, _RANGES)}: {place}")


def _tell_place(stack: Stack) -> str:
    """What the thread is in, and the innermost frames of the program."""
    frames = [line_and_name(frame) for frame in user_frames(stack)[:_FRAMES]]
    inner = stack[0] if stack else None
    called = f"in {line_and_name(inner)}" if inner else "no frame"
    return f"{find_shape(stack)}, {called}, called from {' < '.join(frames) or 'no code of the program'}"


THREADS = Tool(
    name="threads",
    description="What every thread of every rank was doing while the job hung, ranks at the same place together.",
    arguments=ThreadsArguments,
    answer=threads,
)
