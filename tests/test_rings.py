"""Rings of waits: the same calls in another order, or one side that skipped, added or was led aside."""

from typing import Any

import pytest

import forkpoint
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Frame
from forkpoint.model.verdict import Cause, Verdict
from small_jobs import MODULE, SmallJob

MESH = {"1": ("dp", (0, 2)), "2": ("dp", (1, 3)), "3": ("tp", (0, 1)), "4": ("tp", (2, 3))}


def _round(job: SmallJob) -> None:
    for group, line in (("3", 33), ("4", 33), ("1", 45), ("2", 45)):
        job.op(group=group, line=line)


def _mesh() -> SmallJob:
    job = SmallJob(4, lib="gloo", groups=MESH)
    _round(job)
    return job


def _answer(verdict: Verdict) -> tuple[Cause, tuple[int, ...]]:
    return verdict.cause, verdict.suspects


def _diagnose(job: SmallJob, events: tuple[LogEvent, ...] = ()) -> Verdict:
    logs = tuple((f"log_rank_{rank}.txt", rank) for rank in range(job.world))
    return forkpoint.diagnose(job.capture(events=events, logs=logs))


def test_a_new_call_of_some_while_the_others_begin_their_next_round_is_no_other_order() -> None:
    job = _mesh()
    job.op(ranks=[0, 2], line=76, done=False)
    job.op(ranks=[1], group="3", line=33, done=False)
    job.op(ranks=[3], group="4", line=33, done=False)

    assert _answer(_diagnose(job)) == (Cause.DIVERGENT_PATH, ())


def test_two_calls_that_are_both_new_may_be_the_same_in_another_order() -> None:
    job = _mesh()
    job.op(ranks=[0, 2], line=76, done=False)
    job.op(ranks=[1], group="3", line=80, done=False)
    job.op(ranks=[3], group="4", line=80, done=False)

    assert _answer(_diagnose(job)) == (Cause.ORDER_INVERSION, ())


@pytest.mark.parametrize("line", [None, 33])
def test_two_calls_that_are_both_known_are_not_told_by_the_round(line: int | None) -> None:
    job = SmallJob(4, lib="gloo", groups={"1": ("a", (0, 1, 2, 3)), "2": ("b", (0, 1, 2, 3))})
    for _ in range(3):
        job.op(group="1", line=line)
        job.op(group="2", line=line)
    job.op(ranks=[0, 1], group="1", line=line, done=False)
    job.op(ranks=[2, 3], group="2", line=line, done=False)

    assert _answer(_diagnose(job)) == (Cause.ORDER_INVERSION, ())


def test_without_stacks_an_equal_size_is_not_the_same_call() -> None:
    job = SmallJob(4, lib="gloo", groups=MESH)
    for group in ("3", "4", "1", "2"):
        job.op(group=group, line=None)
    job.op(ranks=[0, 2], line=None, done=False)
    job.op(ranks=[1], group="3", line=None, done=False)
    job.op(ranks=[3], group="4", line=None, done=False)

    assert Cause.DIVERGENT_PATH not in [f.cause for f in _diagnose(job).findings]


def _told(rank: int, at: int, kind: LogKind, text: str, line: int, *, chained: bool = False) -> LogEvent:
    stack = (Frame("step", "/train/train.py", line), Frame("<module>", "/train/train.py", 99))
    details = (("chain", "while another was handled"),) if chained else ()
    return LogEvent(
        kind, f"log_rank_{rank}.txt", at, rank, text, stack=stack, exception=text.partition(":")[0], details=details
    )


RAISED = "ValueError: row 80 has no label"
TIMED_OUT = "RuntimeError: Timed out waiting 10000ms for recv operation to complete"
CLOSED = "RuntimeError: Connection closed by peer [127.0.0.1]:8082"


def _in_finally() -> SmallJob:
    """Rank 2 waits in a barrier that the others have not come to; they wait for it, or for each other."""
    job = _mesh()
    _round(job)
    job.op(ranks=[2], name="barrier", line=90, done=False)
    job.op(ranks=[3], group="4", line=33, done=False)
    job.op(group="3", line=33)
    job.op(ranks=[0], group="1", line=45, done=False)
    job.op(ranks=[1], group="2", line=45, done=False)
    return job


def test_a_rank_whose_exception_led_it_to_the_call_in_which_it_stands_is_named() -> None:
    verdict = _diagnose(
        _in_finally(),
        (
            _told(0, 5, LogKind.NETWORK, CLOSED, 45),
            _told(0, 9, LogKind.NETWORK, CLOSED, 90, chained=True),
            _told(2, 5, LogKind.EXCEPTION, RAISED, 68),
            _told(2, 9, LogKind.PEER_TIMEOUT, TIMED_OUT, 90, chained=True),
        ),
    )

    assert _answer(verdict) == (Cause.DIVERGENT_PATH, (2,))
    assert [(e.file, e.where) for e in verdict.findings[0].evidence[:2]] == [
        ("log_rank_2.txt", "line 5"),
        ("log_rank_2.txt", "line 9"),
    ]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(
            (_told(2, 5, LogKind.EXCEPTION, RAISED, 68), _told(2, 9, LogKind.PEER_TIMEOUT, TIMED_OUT, 90)),
            id="it was handled before",
        ),
        pytest.param(
            (
                _told(2, 5, LogKind.EXCEPTION, RAISED, 68),
                _told(2, 9, LogKind.PEER_TIMEOUT, TIMED_OUT, 12, chained=True),
            ),
            id="another call ended while it was handled",
        ),
        pytest.param(
            (_told(2, 5, LogKind.NETWORK, CLOSED, 68), _told(2, 9, LogKind.PEER_TIMEOUT, TIMED_OUT, 90, chained=True)),
            id="a peer was the reason",
        ),
    ],
)
def test_an_exception_that_did_not_lead_there_names_nobody(events: tuple[LogEvent, ...]) -> None:
    assert _diagnose(_in_finally(), events).suspects == ()


def test_ranks_that_all_came_by_an_exception_are_not_told_apart_by_it() -> None:
    job = _mesh()
    job.op(ranks=[0, 2], line=76, done=False)
    job.op(ranks=[1], group="3", line=80, done=False)
    job.op(ranks=[3], group="4", line=80, done=False)
    events = tuple(
        event
        for rank in range(4)
        for event in (
            _told(rank, 5, LogKind.EXCEPTION, RAISED, 68),
            _told(rank, 9, LogKind.PEER_TIMEOUT, TIMED_OUT, 80 if rank % 2 else 76, chained=True),
        )
    )

    assert _diagnose(job, events).suspects == ()


IN_A_THREAD = [
    {"name": "_write", "filename": "/train/save.py", "line": 20},
    {"name": "run", "filename": "/usr/lib/python3.11/threading.py", "line": 982},
    {"name": "_bootstrap", "filename": "/usr/lib/python3.11/threading.py", "line": 1002},
]


@pytest.mark.parametrize(("all_save", "cause"), [(True, Cause.ORDER_INVERSION), (False, Cause.DIVERGENT_PATH)])
def test_calls_of_two_threads_have_no_order_only_where_all_ranks_make_both(*, all_save: bool, cause: Cause) -> None:
    job = SmallJob(4)
    job.op(line=40, size=64)
    if all_save:
        job.op(name="all_gather", size=1, frames=IN_A_THREAD)
    job.op(line=40, size=64)
    job.op(ranks=[0, 1, 2], line=40, size=64, done=False)
    job.op(ranks=[3], name="all_gather", size=1, frames=IN_A_THREAD, done=False)

    assert _diagnose(job).cause is cause


def _beside_the_reducer(odd: list[dict[str, Any]], *, saved: bool = True) -> Verdict:
    """Three ranks are in a call of C++, which has no frames; rank 3 is in one that has these. `saved`: so were all before."""
    job = SmallJob(4)
    for _ in range(2):
        job.op(line=None, size=64, thread_name="pt_autograd_0")
        if saved:
            job.op(name="all_gather", size=1, frames=odd)
    job.op(line=None, size=64, thread_name="pt_autograd_0")
    job.op(ranks=[0, 1, 2], line=None, size=64, thread_name="pt_autograd_0", done=False)
    job.op(ranks=[3], name="all_gather", size=1, frames=odd, done=False)
    return _diagnose(job)


def test_a_thread_s_call_beside_one_of_ddp_s_reducer_is_in_no_order_and_nobody_s_fault() -> None:
    verdict = _beside_the_reducer(IN_A_THREAD)

    assert _answer(verdict) == (Cause.ORDER_INVERSION, ())
    assert verdict.headline.startswith("Two threads use one group")
    assert "process group of its own" in verdict.findings[0].fixes[0].title


def test_a_call_without_frames_and_one_of_the_main_thread_are_not_of_two_threads() -> None:
    in_main = [{"name": "log", "filename": "/train/log.py", "line": 20}, MODULE]

    assert _answer(_beside_the_reducer(in_main)) == (Cause.DIVERGENT_PATH, (3,))


def test_a_thread_that_only_one_rank_has_is_another_path_beside_the_reducer_too() -> None:
    assert _beside_the_reducer(IN_A_THREAD, saved=False).cause is Cause.DIVERGENT_PATH


def test_a_ring_whose_slot_was_called_from_two_places_is_no_other_order() -> None:
    job = SmallJob(4, groups={"1": ("dp", (0, 2)), "2": ("dp", (1, 3))})
    for group in ("1", "2"):
        job.op(group=group, line=45)
    job.op(line=50)
    job.op(ranks=[0, 1], line=33, done=False)
    for group, rank in (("1", 2), ("2", 3)):
        job.op(ranks=[rank], group=group, line=45, done=False)
    job.op(ranks=[2, 3], line=50, done=False)

    assert _answer(_diagnose(job)) == (Cause.DIVERGENT_PATH, ())


def _pair_against_world(*, first: bool) -> Verdict:
    """Rank 2 waits in a group of its own, of which gloo's dumps do not say who belongs to it; the others wait for it."""
    job = SmallJob(4, lib="gloo", groups={"1": ("undefined", (0, 1)), "2": ("undefined", (2, 3))})
    job.op(line=45)
    job.op(group="1", line=19)
    job.op(ranks=[2], group="2", line=19, done=False)
    job.op(ranks=[0, 1, 3] if first else [0, 1], line=19, done=False)
    return _diagnose(job)


def test_ranks_that_all_wait_are_no_healthy_job_though_members_of_a_group_are_not_known() -> None:
    first, second = _pair_against_world(first=True).hypotheses[:2]

    assert {first.cause, second.cause} == {Cause.ORDER_INVERSION, Cause.DIVERGENT_PATH}
    assert (3,) in first.sides
    assert Cause.HEALTHY in [h.cause for h in _pair_against_world(first=False).hypotheses]
