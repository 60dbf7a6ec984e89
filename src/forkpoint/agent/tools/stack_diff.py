"""Two ranks' stacks side by side: what they share from outside, and where they part."""

from collections.abc import Iterator, Sequence

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import answer, fact, known_rank
from forkpoint.agent.tools.frames import outermost_first, tell_stack
from forkpoint.agent.tools.stacks import standing
from forkpoint.agent.wire import Wire
from forkpoint.model.op import Frame, Stack


class Arguments(Wire):
    rank: int
    other: int


def stack_diff(case: Case, asked: Arguments) -> Sequence[Fact]:
    ranks = (known_rank(case, asked.rank), known_rank(case, asked.other))
    if ranks[0] == ranks[1]:
        raise Refused("these are the same rank; ask stacks")
    for when, held in (("while the job hung", _live), ("at the call each waits in", _recorded)):
        one, other = (held(case, rank) for rank in ranks)
        if one and other:
            return answer(_compare(case, ranks, (outermost_first(one), outermost_first(other)), when), "ask stacks")
    missing = [str(rank) for rank in ranks if not (_live(case, rank) or _recorded(case, rank))]
    raise Refused(f"there are no two stacks of one kind to compare; without any: {', '.join(missing) or 'neither'}")


def _live(case: Case, rank: int) -> Stack:
    return next((live.stack for live in case.incident.capture.stacks if live.rank == rank), ())


def _recorded(case: Case, rank: int) -> Stack:
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
        yield fact(case, where, "they do not part: both stand at the same line")
        return
    for rank, rest in zip(ranks, (one[shared:], other[shared:]), strict=True):
        if rest:
            yield from tell_stack(case, where, rest, f"rank {rank} alone from here on, outermost first")
        else:
            yield fact(case, where, f"rank {rank} stands in the last line that both share")


TOOL = Tool(
    name="stack_diff",
    description="Two ranks' stacks: the frames they share from outside, and where they part.",
    arguments=Arguments,
    answer=stack_diff,
)
