"""Where ranks were: stacks while the job hung, at the last call and in logs; two ranks side by side; every thread of every rank."""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby

from forkpoint.agent.case import Wire, tool
from forkpoint.brief.calls import tell_op
from forkpoint.brief.case import Case, Fact, QuestionRefused, answer, fact, known_rank, line_of, name_group, name_module
from forkpoint.evidence.stacks.shapes import find_shape
from forkpoint.model.frames import is_library, line_and_name, user_frames
from forkpoint.model.op import Frame, Op, Stack
from forkpoint.model.timeline import Position
from forkpoint.model.world import name_ranks

MAX_FRAMES = 200
"""Innermost frames kept. A recursion can be deeper; the outer frames are usually the same on all ranks."""


def tell_frame(case: Case, frame: Frame) -> str:
    """`train.py:37 main: `loss = step(batch)``; relative to the source root and with its text, if the source is known."""
    module = case.analysis.program.module_at(frame.filename) if case.analysis is not None else None
    if module is None:
        return f"{frame.filename}:{frame.line} {frame.name}"
    return f"{name_module(case, module)}:{frame.line} {frame.name}: `{line_of(module, frame.line).strip()}`"


def tell_stack(case: Case, where: str, frames: Sequence[Frame], whose: str) -> Iterator[Fact]:
    """In the given order. Of consecutive library frames, only the first is named."""
    for library, run in groupby(frames[:MAX_FRAMES], is_library):
        held = list(run)
        if library:
            inner = held[0]
            more = f" and {len(held) - 1} more in libraries" if len(held) > 1 else ""
            yield fact(case, where, f"{whose}: {line_and_name(inner)}{more}")
        else:
            yield from (fact(case, where, f"{whose}: {tell_frame(case, frame)}") for frame in held)


def outermost_first(stack: Stack) -> tuple[Frame, ...]:
    return stack[:MAX_FRAMES][::-1]


_MAX_EVENTS = 3
_RANGES = 4


def _of_rank(case: Case, rank: int) -> Sequence[Fact]:
    shown = chain(_tell_live(case, rank), _tell_recorded(case, rank), _in_logs(case, rank))
    return answer(shown, "ask stack_diff, or read_source", f"no stack of rank {rank} is in the evidence")


def standing(case: Case, rank: int) -> Position | None:
    """Its first unfinished call; if all are finished, or the dump is cut off, its last one."""
    timeline = case.incident.timeline
    stands = timeline.positions.get(rank, ())
    if stands:
        return stands[0]
    last = [Position(t.last, g.group, None) for g in timeline.groups if (t := g.track(rank))]
    last += [
        Position(t.last, c.group, (c.source, c.destination))
        for c in timeline.channels
        if (t := c.end(rank)) is not None
    ]
    return max(last, key=lambda position: position.op.record_id, default=None)


def _tell_live(case: Case, rank: int) -> Iterator[Fact]:
    for live in case.incident.capture.stacks:
        if live.rank == rank:
            where = f"{live.file} line {live.line}"
            yield from tell_stack(case, where, live.stack, f"rank {rank} while the job hung, innermost first")
            for name, stack in live.others:
                yield from tell_stack(case, where, stack, f"rank {rank}, another thread {name}".rstrip())


def _tell_recorded(case: Case, rank: int) -> Iterator[Fact]:
    position = standing(case, rank)
    if position is None:
        return
    op = position.op
    trace = case.incident.timeline.traces[rank]
    where = f"{trace.file} entry {op.record_id}"
    group = name_group(position.group, case.incident.timeline)
    slot = f"{group} message {op.seq}" if position.channel else f"{group} seq {op.seq}"
    yield fact(case, where, f"rank {rank} in {slot}: {tell_op(op)}{_without_frames(op)}")
    yield from tell_stack(case, where, op.stack or (), f"rank {rank} at {slot}, innermost first")


def _without_frames(op: Op) -> str:
    if op.stack is None:
        return "; its dump was made without stacks"
    return "" if op.stack else "; called from C++, so no Python frame is recorded"


def _in_logs(case: Case, rank: int) -> Iterator[Fact]:
    told = [event for event in case.incident.said.get(rank, ()) if event.stack]
    for event in told[:_MAX_EVENTS]:
        where = f"{event.file} line {event.line}"
        yield fact(case, where, f"rank {rank} by its log ({event.kind}): {event.text}")
        yield from tell_stack(case, where, event.stack, f"rank {rank} by its log, innermost first")


class StackDiffArguments(Wire):
    rank: int | None = None
    """Null: a suspect."""
    other: int | None = None
    """Null: another rank."""


@tool("Two ranks' stacks: the outer frames they share, and where they differ.")
def stack_diff(case: Case, asked: StackDiffArguments) -> Sequence[Fact]:
    ranks = _two_ranks(case, asked)
    if ranks[0] == ranks[1]:
        raise QuestionRefused("these are the same rank; ask stacks")
    for when, held in (("while the job hung", _live_stack), ("at the call each waits in", _recorded_stack)):
        one, other = (held(case, rank) for rank in ranks)
        if one and other:
            return answer(_compare(case, ranks, (outermost_first(one), outermost_first(other)), when), "ask stacks")
    missing = [str(rank) for rank in ranks if not (_live_stack(case, rank) or _recorded_stack(case, rank))]
    raise QuestionRefused(
        f"there are no two stacks of the same kind to compare; ranks without any: {', '.join(missing) or 'none'}"
    )


def _two_ranks(case: Case, asked: StackDiffArguments) -> tuple[int, int]:
    """A suspect, or a rank of the smallest cohort; and a rank that did something else."""
    cohorts = case.verdict.divergence.cohorts if case.verdict.divergence else ()
    odd = [*case.verdict.suspects, *(rank for cohort in reversed(cohorts) for rank in cohort.ranks)]
    one = asked.rank if asked.rank is not None else next(iter(odd), 0)
    beside = [rank for cohort in cohorts if one not in cohort.ranks for rank in cohort.ranks]
    usual = next(iter([*beside, *(rank for rank in case.incident.timeline.world if rank != one)]), one)
    return known_rank(case, one), known_rank(case, asked.other if asked.other is not None else usual)


def _live_stack(case: Case, rank: int) -> Stack:
    return next((live.stack for live in case.incident.capture.stacks if live.rank == rank), ())


def _recorded_stack(case: Case, rank: int) -> Stack:
    position = standing(case, rank)
    return (position.op.stack or ()) if position is not None else ()


def _compare(
    case: Case, ranks: tuple[int, int], frames: tuple[tuple[Frame, ...], tuple[Frame, ...]], when: str
) -> Iterator[Fact]:
    one, other = frames
    shared = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    where = f"stacks of ranks {ranks[0]} and {ranks[1]} {when}"
    yield from tell_stack(case, where, one[:shared], "both, outermost first")
    if one[shared:] == other[shared:]:
        yield fact(case, where, "they do not differ: both are at the same line")
        return
    for rank, rest in zip(ranks, (one[shared:], other[shared:]), strict=True):
        if rest:
            yield from tell_stack(case, where, rest, f"rank {rank} alone from here on, outermost first")
        else:
            yield fact(case, where, f"rank {rank} is in the last frame that both share")


# ---------------------------------------------------------------------------------------------------------------------
# Threads: what each was doing, ranks at the same place together.

_FRAMES = 4


class ThreadsArguments(Wire):
    rank: int | None = None
    """Only this rank, frame by frame, with its recorded call."""


@tool("What every thread of every rank was doing while the job hung, ranks at the same place together.")
def threads(case: Case, asked: ThreadsArguments) -> Sequence[Fact]:
    if asked.rank is not None:
        return _of_rank(case, known_rank(case, asked.rank))
    nothing = "no stack was taken while the job hung; table shows the line of each recorded call"
    return answer(_clusters(case), "ask for one rank", nothing)


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
