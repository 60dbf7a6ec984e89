"""Ranks without a dump whose stack or traceback shows them in a call count there. Each vote with near misses."""

import forkpoint
from forkpoint.model.capture import LiveStack
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from small_jobs import MODULE, TORCH, SmallJob
from texts import CLOSED, TIMED_OUT, raised, with_logs

IN_TORCH = Frame(TORCH["name"], TORCH["filename"], TORCH["line"])
SCRIPT = Frame(MODULE["name"], MODULE["filename"], MODULE["line"])
CALL, ELSEWHERE = 10, 30


def standing(line: int, name: str = "step") -> Stack:
    return (IN_TORCH, Frame(name, "/train/train.py", line), SCRIPT)


def failed(rank: int, error: str, line: int) -> list[str]:
    text = raised(rank, error, ("/train/train.py", line, "step"))
    return text.replace("/job/train.py", "/train/train.py").replace("line 90", "line 99").splitlines()


# ---------------------------------------------------------------------------------------------------------------------
# A call that one rank misses, and two dumps of four.


def missed(stands: dict[int, int], *, lib: str = "gloo", beside: str | None = None, name: str = "step") -> Verdict:
    """Rank 0 waits, rank 1 has nothing pending, of ranks 2 and 3 no dump is left. `stands`: the lines of their stacks. `beside`: a
    group in which calls were made from the same line.
    """
    job = SmallJob(4, lib=lib, groups={"1": ("rows", (0, 2)), "2": ("rows", (1, 3))})
    for _ in range(3):
        job.op(line=CALL)
        for group in ("1", "2") if beside else ():
            job.op(group=group, line=CALL)
    job.op([0], line=CALL, done=False)
    stacks = tuple(LiveStack(rank, f"stack_rank_{rank}", 1, standing(line, name)) for rank, line in stands.items())
    said = {0: failed(0, TIMED_OUT, CALL)} if lib == "gloo" else {}
    return forkpoint.diagnose(with_logs(job.capture([0, 1], stacks=stacks), said))


def test_ranks_that_stand_in_the_call_outvote_the_one_that_did_not_come() -> None:
    verdict = missed({2: CALL, 3: CALL})

    assert (verdict.cause, verdict.suspects) == (Cause.HOST_STALL, (1,))


def test_a_function_that_py_spy_calls_by_its_class_is_the_one_of_the_recorder() -> None:
    verdict = missed({2: CALL, 3: CALL}, name="Trainer.step")

    assert (verdict.cause, verdict.suspects) == (Cause.HOST_STALL, (1,))


@for_each(
    "stands, changed",
    [
        ({2: CALL}, {}),
        ({2: CALL, 3: ELSEWHERE}, {}),
        ({2: CALL, 3: CALL}, {"beside": "rows"}),
        ({2: CALL, 3: CALL}, {"lib": "nccl"}),
    ],
    ids=["one is not seen", "one is in another call", "the line makes calls of two groups", "hosts run ahead"],
)
def test_ranks_that_may_be_in_another_call_do_not_count(stands: dict[int, int], changed: dict[str, str]) -> None:
    assert missed(stands, **changed).suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# A ring between the calls of columns and of the whole job: three replicas of two ranks.

COLUMNS = {"1": ("dp", (0, 2, 4)), "2": ("dp", (1, 3, 5))}
GRADIENTS, VALIDATES = 34, 58


def ring(again: tuple[int, ...], *, whole: tuple[int, ...] = (), seen: dict[int, int] | None = None) -> Verdict:
    """Rank 1 left no dump. These ranks reduce once more over their column, the others validate. `whole`: a column in which all did.
    `seen`: the line in which rank 1 failed.
    """
    job = SmallJob(6, lib="gloo", groups=COLUMNS)
    for _ in range(3):
        for group in COLUMNS:
            job.op(group=group, line=GRADIENTS)
    job.op(whole, group="2", line=GRADIENTS)
    for group, (_, members) in COLUMNS.items():
        job.op([r for r in members if r in again and r not in whole], group=group, line=GRADIENTS, done=False)
    job.op([r for r in range(6) if r not in again], line=VALIDATES, done=False)
    lines = {r: GRADIENTS if r in again else VALIDATES for r in range(6) if r != 1} | (seen or {})
    said = {r: failed(r, CLOSED if r in again else TIMED_OUT, line) for r, line in lines.items()}
    return forkpoint.diagnose(with_logs(job.capture([0, 2, 3, 4, 5]), said))


def test_a_replica_that_ran_one_step_more_is_outvoted_in_every_call_of_the_ring() -> None:
    verdict = ring((2, 3), seen={1: VALIDATES})

    assert (verdict.cause, verdict.suspects) == (Cause.DIVERGENT_PATH, (2, 3))


def test_nobody_is_outvoted_by_a_rank_that_is_not_seen() -> None:
    assert ring((2, 3)).suspects == ()


def test_ranks_that_a_rank_of_the_majority_holds_up_are_not_odd() -> None:
    """Rank 2 left out the reduction in which ranks 0 and 4 wait for it; column 1 is through."""
    assert set(ring((0, 4), seen={1: VALIDATES}).suspects) <= {2}


def test_a_call_that_the_parallel_column_made_is_no_call_too_many() -> None:
    """All of ranks 1, 3 and 5 have reduced once more, and rank 2 has, too: ranks 0 and 4 left it out."""
    assert 2 not in ring((2,), whole=(1, 3, 5), seen={1: VALIDATES}).suspects
