"""Readings that stay open, decided by what ranks printed: the side that just those ranks are, and no cause that is not seen. Each with a near miss."""

from collections.abc import Iterable

import forkpoint
from forkpoint.diverge.align import align
from forkpoint.judge.naming import name_by_lines
from forkpoint.model.capture import LiveStack
from forkpoint.model.incident import Incident
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import Action, Cause, Finding, Hypothesis, Verdict
from looping import for_each
from small_jobs import SmallJob
from texts import REFUSED, TIMED_OUT, TORCH, raised, with_logs

STEPS = [f"step {n} loss 2.{n}" for n in range(3)]
COLD = "cache is cold, computing features again"
LEAVES = "no improvement, stopping early"
OPEN = Finding("none", Cause.INCONCLUSIVE, (), 0.0, "Nobody is named.", Action.INVESTIGATE, ())
C10D = f"{TORCH}/distributed/distributed_c10d.py"
MODULE = Frame("<module>", "/job/train.py", 90)
REDUCES: Stack = (Frame("all_reduce", C10D, 3252), Frame("main", "/job/train.py", 40), MODULE)
AT_BARRIER: Stack = (Frame("barrier", C10D, 5070), Frame("main", "/job/train.py", 44), MODULE)
OUTSIDE: Stack = (Frame("features", "/job/data.py", 12), Frame("main", "/job/train.py", 30), MODULE)


def answer(found: Finding | Verdict) -> tuple[Cause, tuple[int, ...]]:
    return found.cause, found.suspects


# ---------------------------------------------------------------------------------------------------------------------
# Two sides made different calls, and of two ranks nothing is recorded.


def parted(own: dict[int, str], group: str = "0") -> Verdict:
    """Rank 3 makes another call than rank 2. `own`: a line that a rank printed alone. `group`: in which they part."""
    job = SmallJob(4, groups={"1": ("pair", (2, 3))})
    for _ in range(3):
        job.op(line=40)
    job.op([2], line=40, group=group, done=False)
    job.op([3], "all_gather", line=66, group=group, done=False)
    ends = {r: raised(r, TIMED_OUT).splitlines() for r in (0, 1)}
    said = {r: [*STEPS, *([own[r]] if r in own else []), *ends.get(r, [])] for r in range(4)}
    return forkpoint.diagnose(with_logs(job.capture([2, 3]), said))


def test_the_side_that_alone_printed_a_line_is_named_with_it() -> None:
    verdict = parted({3: COLD})

    assert answer(verdict) == (Cause.DIVERGENT_PATH, (3,))
    assert verdict.headline.startswith(f'Rank 3 left the path of the others: only it logged "{COLD}"')
    assert f'only rank 3 printed "{COLD}"' in verdict.summary


def test_a_line_of_its_own_names_nobody_in_a_group_of_some_ranks() -> None:
    """Ranks of other groups may have done the same, and their dumps be lost."""
    assert answer(parted({3: COLD}, group="1")) == (Cause.DIVERGENT_PATH, ())


@for_each(
    "own",
    [{}, {1: COLD}, {2: COLD, 3: "4 workers ready"}, {1: "4 workers ready", 3: COLD}],
    ids=["nobody", "one that is no side", "both sides", "one more rank that is no side"],
)
def test_nobody_is_named_where_just_that_side_is_not_what_differs(own: dict[int, str]) -> None:
    assert parted(own).suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# Which cause, by where ranks are.


def judged(
    readings: Iterable[Hypothesis],
    own: dict[int, str],
    *,
    lib: str = "gloo",
    stacks: dict[int, Stack] | None = None,
    ends: dict[int, str] | None = None,
    best: Finding = OPEN,
) -> Finding:
    """`ends`: what the logs of these ranks end with; others time out in the call of `REDUCES`."""
    job = SmallJob(4, lib=lib)
    job.op()
    live = tuple(LiveStack(rank, f"stacks_rank_{rank}", 1, stack) for rank, stack in (stacks or {}).items())
    last = {0: raised(0, TIMED_OUT)} if ends is None else ends
    said = {r: [*STEPS, *([own[r]] if r in own else []), *last.get(r, "").splitlines()] for r in range(4)}
    capture = with_logs(job.capture(stacks=live), said)
    return name_by_lines(best, tuple(readings), Incident.of(capture, align(capture), ()))


def reading(cause: Cause, *sides: tuple[int, ...], alternatives: tuple[Cause, ...] = ()) -> Hypothesis:
    return Hypothesis(cause, (), f"one of {sides} is at fault", "", alternatives=alternatives, sides=sides)


EITHER = reading(Cause.HOST_STALL, (0, 1, 3), (2,), alternatives=(Cause.DIVERGENT_PATH,))
WAITING = dict.fromkeys((0, 1, 3), REDUCES)


def test_a_rank_in_a_call_of_its_own_took_another_path() -> None:
    assert answer(judged([EITHER], {2: COLD}, stacks=WAITING | {2: AT_BARRIER})) == (Cause.DIVERGENT_PATH, (2,))


def test_a_rank_outside_for_whom_all_others_are_seen_waiting_is_held_by_its_host() -> None:
    found = judged([EITHER], {2: COLD}, stacks=WAITING | {2: OUTSIDE})

    assert answer(found) == (Cause.HOST_STALL, (2,))
    assert found.headlines[0] == f'rank 2 is stuck on its host: only it logged "{COLD}"'


@for_each(
    "lib, stacks",
    [
        ("nccl", WAITING | {2: OUTSIDE}),
        ("gloo", WAITING | {1: OUTSIDE, 2: OUTSIDE}),
        ("gloo", {0: REDUCES, 2: OUTSIDE}),
        ("gloo", WAITING),
    ],
    ids=["it may wait for its GPU", "another is outside, too", "few are seen", "it is not seen"],
)
def test_a_host_is_not_said_to_be_stuck_where_that_is_not_seen(lib: str, stacks: dict[int, Stack]) -> None:
    ends = {3: raised(3, TIMED_OUT)} if len(stacks) > 2 else {0: raised(0, TIMED_OUT)}

    assert judged([EITHER], {2: COLD}, lib=lib, stacks=stacks, ends=ends) == OPEN


def test_a_rank_whose_side_no_reading_offers_is_not_named() -> None:
    assert judged([EITHER], {1: COLD}, stacks=WAITING | {2: AT_BARRIER}) == OPEN


def test_a_cause_that_no_reading_offers_for_this_side_is_not_named() -> None:
    only_host = reading(Cause.HOST_STALL, (2,))

    assert judged([only_host], {2: COLD}, stacks=WAITING | {2: AT_BARRIER}) == OPEN


def test_where_the_same_ranks_may_have_called_in_another_order_the_cause_stays_open() -> None:
    order = reading(Cause.ORDER_INVERSION, (0, 1, 3), (2,))
    others = reading(Cause.ORDER_INVERSION, (0, 1), (3,))
    stacks = WAITING | {2: AT_BARRIER}

    assert judged([EITHER, order], {2: COLD}, stacks=stacks) == OPEN
    assert answer(judged([EITHER, others], {2: COLD}, stacks=stacks)) == (Cause.DIVERGENT_PATH, (2,))


def test_nothing_is_named_where_no_hang_and_no_failure_is_shown() -> None:
    stacks = WAITING | {2: AT_BARRIER}

    assert judged([EITHER], {2: COLD}, stacks=stacks, ends={}) == OPEN


def test_a_rank_that_is_named_already_stays_so() -> None:
    named = Finding("x", Cause.RANK_LOST, (1,), 0.9, "Rank 1 is gone.", Action.INVESTIGATE, ())

    assert judged([EITHER], {2: COLD}, stacks=WAITING | {2: AT_BARRIER}, best=named) == named


# ---------------------------------------------------------------------------------------------------------------------
# Data of another size: from another call, or with other arguments.

SIZES = reading(Cause.METADATA_MISMATCH, (0, 1, 3), (2,), alternatives=(Cause.DIVERGENT_PATH,))


@for_each(
    "own, waited, cause",
    [
        (COLD, REDUCES, Cause.METADATA_MISMATCH),
        (LEAVES, REDUCES, Cause.DIVERGENT_PATH),
        (COLD, AT_BARRIER, Cause.DIVERGENT_PATH),
    ],
    ids=["the program chose them", "the rank says that it leaves", "torch chose them"],
)
def test_data_of_another_size_is_of_another_call_only_where_something_says_so(
    own: str, waited: Stack, cause: Cause
) -> None:
    found = judged([SIZES], {2: own}, stacks={0: waited, 1: waited}, ends={1: REFUSED})

    assert answer(found) == (cause, (2,))
