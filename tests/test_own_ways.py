"""Lines to which the source brings one rank alone: whom they name, and whom not."""

from dataclasses import replace

from forkpoint.diverge.align import align
from forkpoint.diverge.cohorts import unrecorded_divergence
from forkpoint.judge.facts.own_ways import find_in_a_branch_of_one
from forkpoint.model.capture import LiveStack, SourceFacts
from forkpoint.model.frames import Lines, program_lines
from forkpoint.model.incident import Cohort, Incident, PartingKind, Role
from forkpoint.model.op import Frame, Stack
from looping import for_each
from small_jobs import SmallJob
from texts import TORCH

ASIDE: Stack = (
    Frame("broadcast", f"{TORCH}/distributed/distributed_c10d.py", 1),
    Frame("evaluate", "/job/train.py", 67),
)
USUAL: Stack = (Frame("barrier", f"{TORCH}/distributed/distributed_c10d.py", 1), Frame("main", "/job/train.py", 79))


def named(
    how: PartingKind, *, of_one: tuple[Stack, ...] = (ASIDE,), odd: tuple[int, ...] = (0,), lib: str = "gloo"
) -> tuple[int, ...]:
    """Rank 0, or these ranks, in one line and rank 2 in another. `of_one`: what the source says of the lines."""
    lines: frozenset[Lines] = frozenset(program_lines(stack) for stack in of_one)
    stacks = tuple(LiveStack(rank, f"stack_{rank}", 1, ASIDE) for rank in odd)
    job = SmallJob(3, lib=lib)
    job.op()
    capture = job.capture(stacks=(*stacks, LiveStack(2, "stack_2", 1, USUAL)))
    capture = replace(capture, source=SourceFacts(on_one_rank=lines))
    cohorts = (Cohort(odd, Role.WAITING, "broadcast"), Cohort((2,), Role.WAITING, "barrier"))
    return find_in_a_branch_of_one(unrecorded_divergence(how, cohorts), Incident.of(capture, align(capture), ()))


def test_the_rank_in_a_line_of_one_rank_alone_left_the_others() -> None:
    assert named(PartingKind.METADATA) == (0,)


@for_each(
    ("how", "given"),
    [
        (PartingKind.MESSAGE, {}),
        (PartingKind.METADATA, {"of_one": (ASIDE, USUAL)}),
        (PartingKind.METADATA, {"of_one": ()}),
        (PartingKind.METADATA, {"odd": (0, 1)}),
        (PartingKind.METADATA, {"lib": "nccl"}),
    ],
    ids=[
        "stages of a pipeline",
        "both have a line of their own",
        "the source does not say so",
        "two ranks",
        "hosts run ahead",
    ],
)
def test_nobody_is_named_where_lines_of_their_own_are_usual(
    how: PartingKind, given: dict[str, tuple[int, ...]]
) -> None:
    assert named(how, **given) == ()  # type: ignore[arg-type]
