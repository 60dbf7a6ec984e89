"""Ranks that only have not come yet, that came to another group, or to no communicator: by stacks and words. Each with a near miss."""

from typing import Any

import forkpoint
from forkpoint.judge.facts.stacks import is_computing
from forkpoint.model.capture import LiveStack
from forkpoint.model.log import LogEvent, LogKind, Work
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from small_jobs import MODULE, SmallJob
from small_jobs import TORCH as IN_TORCH
from texts import TORCH

C10D = f"{TORCH}/distributed/distributed_c10d.py"
TOP = Frame("<module>", "/job/train.py", 90)
LAYER = Frame("forward", f"{TORCH}/nn/modules/linear.py", 125)


def answer(verdict: Verdict) -> tuple[Cause, tuple[int, ...]]:
    return verdict.cause, verdict.suspects


def waits(line: int, function: str = "main") -> Stack:
    return (Frame("all_reduce", C10D, 3252), Frame(function, "/job/train.py", line), TOP)


def computes(line: int, function: str = "main", inside: Frame = LAYER) -> Stack:
    return (inside, Frame("forward", "/job/model.py", 12), Frame(function, "/job/train.py", line), TOP)


# ---------------------------------------------------------------------------------------------------------------------
# Stacks alone.

GLOO = (
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation to complete"
)


def by_stacks(stacks: list[Stack], *, gloo: bool = True) -> Verdict:
    """`gloo`: a rank says that its call of gloo timed out, else that one of NCCL did."""
    work = Work("ALLREDUCE", 4, 4, 4, 20_000, 20_010)
    said = (
        LogEvent(LogKind.PEER_TIMEOUT, "log_0", 9, 0, GLOO, exception="RuntimeError")
        if gloo
        else LogEvent(LogKind.WATCHDOG_TIMEOUT, "log_0", 9, 0, "Watchdog caught", seq=4, work=work)
    )
    live = tuple(LiveStack(rank, f"stacks_{rank}", 1, stack) for rank, stack in enumerate(stacks))
    logs = tuple((f"log_{rank}", rank) for rank in range(len(stacks)))
    return forkpoint.diagnose(SmallJob(len(stacks)).capture((), events=(said,), stacks=live, logs=logs))


def test_a_layer_that_computes_is_told_from_a_call_and_from_the_program_s_own_lines() -> None:
    assert is_computing(computes(30))
    assert not is_computing(waits(40))
    assert not is_computing((Frame("main", "/job/train.py", 30), TOP))


def test_a_rank_that_computes_while_the_others_wait_in_gloo_holds_them() -> None:
    assert answer(by_stacks([waits(40), waits(40), computes(30), waits(40)])) == (Cause.HOST_STALL, (2,))


def test_with_nccl_such_a_line_may_wait_for_a_gpu() -> None:
    assert by_stacks([waits(40), waits(40), computes(30), waits(40)], gloo=False).suspects == ()


def test_of_two_ranks_the_one_before_the_call_in_which_the_other_waits_is_on_its_way_to_it() -> None:
    assert answer(by_stacks([waits(40), computes(30)])) == (Cause.HOST_STALL, (1,))


@for_each(
    "held, gloo",
    [(computes(50), True), (computes(30, "evaluate"), True), (computes(30), False)],
    ids=["it is past that call", "it is in another function", "NCCL"],
)
def test_of_two_ranks_neither_is_named_where_it_may_have_left_that_call_out(held: Stack, gloo: bool) -> None:
    assert by_stacks([waits(40), held], gloo=gloo).suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# A communicator that all ranks but the first set up.


def asks(rank: int) -> LogEvent:
    text = "[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error"
    return LogEvent(LogKind.STORE, f"log_{rank}", 9, rank, text, exception="DistBackendError")


def set_up(asking: tuple[int, ...], waiting: tuple[int, ...]) -> Verdict:
    """Ranks that ask the first one for the id of a communicator, and those whose watchdog tells of a call."""
    work = Work("BROADCAST", 4, 4, 4, 20_000, 20_010)
    words = [LogEvent(LogKind.WATCHDOG_TIMEOUT, f"log_{r}", 9, r, "Watchdog", seq=4, work=work) for r in waiting]
    logs = tuple((f"log_{rank}", rank) for rank in range(4))
    return forkpoint.diagnose(SmallJob(4).capture((), events=(*map(asks, asking), *words), logs=logs))


def test_the_first_rank_that_waits_in_another_call_did_not_come_to_set_up_the_communicator() -> None:
    verdict = set_up(asking=(1, 2, 3), waiting=(0,))

    assert answer(verdict) == (Cause.DIVERGENT_PATH, (0,))
    assert verdict.headline.startswith("Rank 0 did not reach the communicator that ranks 1-3 set up")


@for_each(
    "asking, waiting",
    [((1, 2), (0,)), ((1, 2, 3), ()), ((0, 1, 3), (2,))],
    ids=["one does not ask", "it says nothing", "it asks, too"],
)
def test_the_first_rank_is_not_named_where_it_is_not_alone_or_not_seen_elsewhere(
    asking: tuple[int, ...], waiting: tuple[int, ...]
) -> None:
    assert set_up(asking, waiting).cause is not Cause.DIVERGENT_PATH


# ---------------------------------------------------------------------------------------------------------------------
# A group that only one rank ever used, from a thread.

THREAD: list[dict[str, Any]] = [
    IN_TORCH,
    {"name": "report", "filename": "/train/metrics.py", "line": 12},
    {"name": "run", "filename": "/opt/lib/python3.12/threading.py", "line": 982},
    {"name": "_bootstrap", "filename": "/opt/lib/python3.12/threading.py", "line": 1002},
]
MAIN: list[dict[str, Any]] = [IN_TORCH, {"name": "step", "filename": "/train/train.py", "line": 50}, MODULE]


def alone(
    frames: list[dict[str, Any]] = THREAD,
    *,
    used: bool = False,
    waiting: tuple[int, ...] = (0, 1, 3),
    hangs: bool = True,
) -> Verdict:
    """Rank 2 made a call in a second group, of which gloo does not record the members; these ranks wait in the first. `used`: they
    called in another one of that kind before. `hangs`: their calls time out.
    """
    everybody = (0, 1, 2, 3)
    job = SmallJob(4, lib="gloo", groups={"1": ("metrics", everybody), "2": ("metrics", everybody)})
    for _ in range(3):
        job.op(line=40)
    if used:
        job.op([0, 1, 3], group="2", frames=frames)
    job.op([2], group="1", frames=frames, done=False)
    job.op(waiting, line=40, done=False)
    events = [
        LogEvent(LogKind.PEER_TIMEOUT, f"log_{rank}", 9, rank, GLOO, exception="RuntimeError") for rank in waiting
    ]
    logs = tuple((f"log_{rank}", rank) for rank in range(4))
    return forkpoint.diagnose(job.capture(events=tuple(events) if hangs else (), logs=logs))


def test_a_thread_of_one_rank_that_made_the_first_call_of_a_group_that_nobody_else_used_took_another_path() -> None:
    assert answer(alone()) == (Cause.DIVERGENT_PATH, (2,))


@for_each(
    "changed",
    [{"used": True}, {"waiting": (0, 1)}, {"frames": MAIN}, {"hangs": False}],
    ids=["others use one of its kind", "another is not seen waiting", "the main thread made it", "nothing hangs"],
)
def test_a_call_is_not_a_thread_s_own_where_others_use_its_group_or_may_come(changed: dict[str, Any]) -> None:
    assert (Cause.DIVERGENT_PATH, (2,)) not in [(f.cause, f.suspects) for f in alone(**changed).findings]
