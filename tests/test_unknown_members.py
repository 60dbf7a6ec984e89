"""Groups whose members no dump tells, as gloo leaves them: who may be missing there, and what names that rank."""

from dataclasses import replace
from pathlib import Path

from msgspec import structs

import forkpoint
from forkpoint.diverge.align import align
from forkpoint.model.capture import Capture, LiveStack
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Frame, Stack
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.verdict import Action, Cause, Verdict
from small_jobs import SmallJob

TORCH = "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
LIBRARY = "/opt/lib/python3.12"
PROGRAM = (Frame("train", "/train/train.py", 97), Frame("<module>", "/train/train.py", 99))
IN_ALL_REDUCE: Stack = (Frame("all_reduce", TORCH, 3252), *PROGRAM)
IN_REGEX: Stack = (Frame("match", f"{LIBRARY}/re/__init__.py", 166), *PROGRAM)
IN_OWN_LINE: Stack = PROGRAM
LOGS = tuple((f"log_rank_{rank}.txt", rank) for rank in range(4))


def _job(name: str = "all_reduce") -> SmallJob:
    """Ten rounds in a group of all four; then rank 1 does not come."""
    job = SmallJob(4, lib="gloo", groups={"1": ("counts", (0, 1, 2, 3))})
    for _ in range(10):
        job.op()
        job.op(group="1", line=79, name=name)
    job.op()
    job.op(ranks=[0, 2, 3], group="1", line=79, done=False, name=name)
    return job


def _stacks(of_rank_1: Stack | None) -> tuple[LiveStack, ...]:
    stacks = {0: IN_ALL_REDUCE, 1: of_rank_1, 2: IN_ALL_REDUCE, 3: IN_ALL_REDUCE}
    return tuple(LiveStack(r, f"stacks_rank_{r}.txt", 1, stack) for r, stack in stacks.items() if stack)


def _said(rank: int, kind: LogKind, text: str, **more: object) -> LogEvent:
    return structs.replace(LogEvent(kind, f"log_rank_{rank}.txt", 9, rank, text), **more)


TIMED_OUT = tuple(
    _said(r, LogKind.PEER_TIMEOUT, "RuntimeError: Timed out waiting 10000ms for recv operation to complete")
    for r in (0, 2, 3)
)
CLOSED = _said(0, LogKind.NETWORK, "RuntimeError: Connection closed by peer [127.0.0.1]:23428")


def _hang(of_rank_1: Stack | None, *more: LogEvent, name: str = "all_reduce") -> Capture:
    """As it is read where rank 1 left no dump."""
    return _job(name).capture([0, 2, 3], events=(*TIMED_OUT, *more), stacks=_stacks(of_rank_1), logs=LOGS)


def _answer(verdict: Verdict) -> tuple[Cause, tuple[int, ...]]:
    return verdict.cause, verdict.suspects


def _group(capture: Capture, name: str) -> GroupTimeline:
    return next(g for g in align(capture).groups if g.group.name == name)


def test_a_rank_without_a_dump_may_belong_to_a_group_that_nobody_declared() -> None:
    capture = _job().capture([0, 2, 3], logs=LOGS)

    assert _group(capture, "1").group.ranks == (0, 2, 3)
    assert _group(capture, "1").maybe == (1,)
    assert _group(capture, "0").maybe == ()


def test_a_whole_dump_without_the_group_shows_that_its_rank_is_no_member() -> None:
    job = SmallJob(4, lib="gloo", groups={"1": ("pair", (0, 2))})
    job.op()
    job.op(group="1")

    assert _group(job.capture(), "1").maybe == ()
    assert _group(job.capture(buffer={3: 1}), "1").maybe == ()
    job.op()
    assert _group(job.capture(buffer={3: 1}), "1").maybe == (3,)  # it may have forgotten


def test_a_group_that_did_nothing_together_yet_may_have_any_member() -> None:
    job = SmallJob(4, lib="gloo", groups={"1": ("pair", (0, 2))})
    job.op()
    job.op(group="1", done=False)

    assert _group(job.capture(), "1").maybe == (1, 3)


def test_a_vote_in_a_ring_counts_those_who_may_be_members() -> None:
    job = SmallJob(5, lib="gloo", groups={"1": ("a", (0, 1, 2, 3, 4)), "2": ("b", (0, 1, 2, 3, 4))})
    for group in ("1", "2"):
        job.op(group=group)
    job.op(ranks=[0, 1], group="1", line=50, done=False)
    job.op(ranks=[2, 3, 4], group="2", line=51, done=False)

    assert forkpoint.diagnose(job.capture([0, 1, 2])).suspects == ()
    assert forkpoint.diagnose(job.capture([0, 1, 2], logs=(*LOGS, ("log_rank_4.txt", 4)))).suspects == ()


def test_declared_members_are_all_there_are() -> None:
    job = SmallJob(4, groups={"1": ("pair", (0, 2))})
    job.op(group="1", done=False)

    assert _group(job.capture([0, 2]), "1").maybe == ()


def test_a_rank_whose_stack_is_at_work_while_all_others_wait_is_held_there() -> None:
    verdict = forkpoint.diagnose(_hang(IN_REGEX))

    assert _answer(verdict) == (Cause.HOST_STALL, (1,))
    assert verdict.action is Action.FIX_CODE
    assert verdict.findings[0].evidence[0].file == "stacks_rank_1.txt"


def test_a_line_of_its_own_may_be_the_wait_itself() -> None:
    assert _answer(forkpoint.diagnose(_hang(IN_OWN_LINE))) == (Cause.INCONCLUSIVE, ())


def test_a_rank_that_stands_in_communication_too_is_not_held() -> None:
    assert _answer(forkpoint.diagnose(_hang(IN_ALL_REDUCE))) == (Cause.INCONCLUSIVE, ())


def test_a_rank_that_tells_of_a_failure_may_be_past_the_call() -> None:
    failed = _said(1, LogKind.PEER_TIMEOUT, "RuntimeError: Timed out waiting 10000ms for send operation to complete")

    assert _answer(forkpoint.diagnose(_hang(IN_REGEX, failed))) == (Cause.INCONCLUSIVE, ())


def test_an_exception_that_ended_a_thread_of_the_rank_did_not_take_the_rank_away() -> None:
    loader: Stack = (Frame("prepare", "/train/train.py", 39), Frame("_bootstrap", f"{LIBRARY}/threading.py", 1032))
    raised = _said(1, LogKind.EXCEPTION, "KeyError: 'label'", stack=loader, exception="KeyError")

    assert _answer(forkpoint.diagnose(_hang(IN_REGEX, raised))) == (Cause.HOST_STALL, (1,))
    assert _answer(forkpoint.diagnose(_hang(None, raised))) == (Cause.INCONCLUSIVE, ())
    own = structs.replace(raised, stack=loader[:1])
    assert _answer(forkpoint.diagnose(_hang(None, own))) == (Cause.RANK_LOST, (1,))


def test_a_rank_that_may_be_no_member_is_not_named_where_a_connection_broke_or_roots_may_differ() -> None:
    assert forkpoint.diagnose(_hang(IN_REGEX, CLOSED)).suspects == ()
    assert forkpoint.diagnose(_hang(IN_REGEX, name="broadcast")).suspects == ()


def test_two_ranks_without_a_dump_are_not_held_by_the_stack_of_one() -> None:
    capture = _job().capture([0, 3], events=TIMED_OUT[:1], stacks=_stacks(IN_REGEX), logs=LOGS)

    assert _answer(forkpoint.diagnose(capture)) == (Cause.INCONCLUSIVE, ())


def test_a_rank_that_does_not_answer_while_those_who_wait_for_it_do_is_gone_or_stopped() -> None:
    capture = _job().capture([0, 2, 3], stacks=_stacks(None), logs=LOGS)

    verdict = forkpoint.diagnose(replace(capture, unanswered=(("stacks_rank_1.txt", 1),)))

    assert _answer(verdict) == (Cause.RANK_LOST, (1,))
    assert verdict.findings[0].evidence[0].file == "stacks_rank_1.txt"


def test_no_dump_and_no_stack_alone_are_no_answer_that_is_missing() -> None:
    capture = _job().capture([0, 2, 3], stacks=_stacks(None), logs=LOGS)

    assert _answer(forkpoint.diagnose(capture)) == (Cause.INCONCLUSIVE, ())


def test_an_answer_that_is_missing_says_nothing_where_the_others_were_asked_at_another_time() -> None:
    importing: Stack = (Frame("<module>", "/train/train.py", 3),)
    stacks = tuple(replace(s, stack=importing) for s in _stacks(None))
    capture = replace(_job().capture([0, 2, 3], stacks=stacks, logs=LOGS), unanswered=(("stacks_rank_1.txt", 1),))

    assert _answer(forkpoint.diagnose(capture)) == (Cause.INCONCLUSIVE, ())


def test_a_rank_that_wrote_a_dump_answered() -> None:
    capture = replace(_job().capture(stacks=_stacks(None), logs=LOGS), unanswered=(("stacks_rank_1.txt", 1),))

    assert Cause.RANK_LOST not in [f.cause for f in forkpoint.diagnose(capture).findings]


def test_an_empty_file_counts_as_no_answer_only_beside_stacks_of_others(tmp_path: Path) -> None:
    stack = f'Current thread 0x01 (most recent call first):\n  File "{TORCH}", line 3252 in all_reduce\n  File "/train/train.py", line 99 in <module>\n'
    (tmp_path / "stacks_rank_0.txt").write_text(stack)
    for name in ("stacks_rank_1.txt", "log_rank_2.txt", "stacks.txt"):
        (tmp_path / name).touch()

    capture = forkpoint.read([str(tmp_path)])

    assert [(Path(file).name, rank) for file, rank in capture.unanswered] == [("stacks_rank_1.txt", 1)]
