"""Where a rank was: its stack while the job hung, at its last call, and in its log."""

from collections.abc import Iterator, Sequence
from itertools import chain

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import answer, fact, known_rank
from forkpoint.agent.tools.calls import tell_op
from forkpoint.agent.tools.frames import tell_stack
from forkpoint.agent.tools.groups import name_group
from forkpoint.agent.wire import Wire
from forkpoint.model.op import Op
from forkpoint.model.timeline import Position

_MAX_EVENTS = 3


class Arguments(Wire):
    rank: int


def stacks(case: Case, asked: Arguments) -> Sequence[Fact]:
    rank = known_rank(case, asked.rank)
    found = answer(
        chain(_live(case, rank), _recorded(case, rank), _in_logs(case, rank)), "ask stack_diff, or read_source"
    )
    if not found:
        raise Refused(f"no stack of rank {rank} is in the evidence")
    return found


def standing(case: Case, rank: int) -> Position | None:
    """Its first call that is not done; where all are done, or the dump ends early, its last one."""
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


def _live(case: Case, rank: int) -> Iterator[Fact]:
    for live in case.incident.capture.stacks:
        if live.rank == rank:
            where = f"{live.file} line {live.line}"
            yield from tell_stack(case, where, live.stack, f"rank {rank} while the job hung, innermost first")


def _recorded(case: Case, rank: int) -> Iterator[Fact]:
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


TOOL = Tool(
    name="stacks",
    description=(
        "Where a rank was: the stack of its main thread while the job hung, the stack of the call it waits in (or issued "
        "last), and stacks in its log. Frames of the user's code one by one."
    ),
    arguments=Arguments,
    answer=stacks,
)
