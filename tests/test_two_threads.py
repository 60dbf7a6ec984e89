"""Two threads that call in one group: NCCL has one order of launches per communicator. Each with a near miss."""

from typing import Any

import forkpoint
from forkpoint.model.log import LogEvent, LogKind, Work
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from small_jobs import MODULE, TORCH, SmallJob

THREADS = [
    {"name": "run", "filename": "/opt/lib/python3.12/threading.py", "line": 982},
    {"name": "_bootstrap", "filename": "/opt/lib/python3.12/threading.py", "line": 1002},
]
IN_MAIN = [TORCH, {"name": "step", "filename": "/train/train.py", "line": 40}, MODULE]
IN_THREAD = [TORCH, {"name": "report", "filename": "/train/metrics.py", "line": 12}, *THREADS]
RUNS: dict[str, Any] = {"state": "started", "done": False}
LOGS = tuple((f"log_{rank}", rank) for rank in range(4))


def timed_out(rank: int) -> LogEvent:
    work = Work("ALLREDUCE", 7, 4, 4, 20_000, 20_010)
    return LogEvent(LogKind.WATCHDOG_TIMEOUT, f"log_{rank}", 9, rank, "Watchdog caught", seq=7, work=work)


def stuck(
    last: list[Any],
    *,
    before: list[Any] = IN_MAIN,
    beside: str = "0",
    lib: str = "nccl",
    hangs: bool = True,
    **state: Any,
) -> Verdict:
    """All ranks are in one call that does not finish. `last`, `before`: the stacks of that call and of those before it. `beside`: the
    group of the calls before it.
    """
    job = SmallJob(4, lib=lib, groups={"1": ("metrics", (0, 1, 2, 3))})
    for _ in range(3):
        job.op(frames=before, group=beside)
        job.op(frames=last)
    job.op(frames=last, **{**RUNS, **state})
    events = tuple(timed_out(rank) for rank in range(4) if hangs)
    return forkpoint.diagnose(job.capture(events=events, logs=LOGS))


def test_a_call_of_a_second_thread_in_the_group_of_the_main_thread_may_have_been_launched_in_another_order() -> None:
    verdict = stuck(IN_THREAD)

    assert (verdict.cause, verdict.suspects) == (Cause.ORDER_INVERSION, ())
    assert not {Cause.TRANSPORT, Cause.GPU_STALL} & {finding.cause for finding in verdict.findings}


def test_a_call_of_the_main_thread_beside_one_of_a_second_is_the_same() -> None:
    assert stuck(IN_MAIN, before=IN_THREAD).cause is Cause.ORDER_INVERSION


def test_a_member_that_did_not_start_is_no_stalled_gpu_where_two_threads_call() -> None:
    """Its GPU may be in the call of the other thread."""

    def not_started(stack: list[Any]) -> Verdict:
        job = SmallJob(4)
        for _ in range(3):
            job.op(frames=IN_MAIN)
            job.op(frames=stack)
        for rank in range(4):
            job.op([rank], frames=stack, done=False, state="scheduled" if rank == 2 else "started")
        return forkpoint.diagnose(job.capture(events=tuple(map(timed_out, range(4))), logs=LOGS))

    assert not_started(IN_MAIN).cause is Cause.GPU_STALL
    assert [finding.cause for finding in not_started(IN_THREAD).findings] == [Cause.ORDER_INVERSION]


@for_each(
    "last, before, beside",
    [(IN_MAIN, IN_MAIN, "0"), (IN_THREAD, IN_THREAD, "0"), (IN_THREAD, IN_MAIN, "1")],
    ids=["the main thread alone", "a second one alone", "each in a group of its own"],
)
def test_threads_that_share_no_group_leave_it_to_the_network(last: list[Any], before: list[Any], beside: str) -> None:
    assert stuck(last, before=before, beside=beside).cause is Cause.TRANSPORT


def test_gloo_takes_calls_of_two_threads_by_their_numbers() -> None:
    assert stuck(IN_THREAD, lib="gloo").cause is not Cause.ORDER_INVERSION


def test_a_job_of_two_threads_that_is_not_seen_to_hang_is_not_blamed_on_their_order() -> None:
    assert stuck(IN_THREAD, hangs=False).cause is not Cause.ORDER_INVERSION


def swapped(in_library: list[Any], *, by_all: bool) -> Verdict:
    """Rank 0 reduces in its main thread while a library's thread broadcasts on the others. `by_all`: rank 0 broadcasts as well, later."""
    job = SmallJob(4)
    for _ in range(3):
        job.op(frames=IN_MAIN)
    job.op([0], frames=IN_MAIN, done=False)
    job.op([1, 2, 3], "broadcast", frames=in_library, done=False)
    if by_all:
        job.op([0], "broadcast", frames=in_library, done=False)
        job.op([1, 2, 3], frames=IN_MAIN, done=False)
    events = tuple(timed_out(rank) for rank in range(4))
    return forkpoint.diagnose(job.capture(events=events, logs=LOGS))


def test_the_thread_of_a_library_is_one_without_a_line_of_the_program() -> None:
    """An asynchronous checkpoint broadcasts in a thread of torch's own."""
    assert swapped([TORCH, *THREADS], by_all=True).cause is Cause.ORDER_INVERSION
    assert swapped([TORCH, *THREADS], by_all=False).cause is not Cause.ORDER_INVERSION
