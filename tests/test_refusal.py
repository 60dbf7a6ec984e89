"""gloo ends a rank that gets more bytes than it waits for: when that rank is the odd one, and when nobody is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from msgspec import structs

import forkpoint
from forkpoint.judge.facts.refusal import message_lengths
from forkpoint.model.capture import Capture, LiveStack
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Frame, Signature
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from small_jobs import SmallJob
from texts import CLOSED, REFUSED, diagnose, logs, raised

C10D = "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
THREADING = {"name": "_bootstrap", "filename": "/opt/lib/python3.12/threading.py", "line": 1002}
LARGE, SMALL = 640, 2
"""Floats. Of four ranks' all_reduce the one makes messages of 320 bytes, the other of 4."""
REFUSING = 1
OTHERS = (0, 2, 3)
LOGS = tuple((f"rank_{rank}.log", rank) for rank in range(4))


def healthy_steps(world: int = 4, groups: dict[str, tuple[str, tuple[int, ...]]] | None = None) -> SmallJob:
    """Each step reduces gradients in line 10; every second one evaluates in line 50."""
    job = SmallJob(world, lib="gloo", groups=groups or {})
    for step in range(4):
        job.op(size=LARGE, line=10)
        if step % 2:
            job.op(size=SMALL, line=50)
    return job


def hanging_job() -> SmallJob:
    job = healthy_steps()
    job.op(OTHERS, size=LARGE, line=10, done=False)
    return job


def refused(sent: int, expected: int, rank: int = REFUSING) -> LogEvent:
    text = f"op.preamble.length <= op.nbytes. {sent} vs {expected}"
    details = (("sent", str(sent)), ("expected", str(expected)))
    return LogEvent(
        LogKind.SIZES_DIFFER, f"rank_{rank}.log", 20, rank, text, pattern="gloo-sizes-differ", details=details
    )


def stood(line: int, call: str = "all_reduce") -> LiveStack:
    user = Frame("step", "/train/train.py", line), Frame("<module>", "/train/train.py", 99)
    return LiveStack(REFUSING, f"rank_{REFUSING}.log", 25, (Frame(call, C10D, 3252), *user))


def evidence_of(job: SmallJob, line: int, sent: int = 320, expected: int = 4, call: str = "all_reduce") -> Capture:
    return job.capture(OTHERS, events=(refused(sent, expected),), stacks=(stood(line, call),), logs=LOGS)


def answer(verdict: Verdict) -> tuple[Cause, tuple[int, ...]]:
    return verdict.cause, verdict.suspects


NOBODY = (Cause.INCONCLUSIVE, ())


def test_a_rank_that_refused_in_another_call_than_all_others_took_another_path() -> None:
    verdict = forkpoint.diagnose(evidence_of(hanging_job(), line=50))

    assert answer(verdict) == (Cause.DIVERGENT_PATH, (REFUSING,))
    assert "train.py:50" in verdict.summary
    assert "train.py:10" in verdict.summary
    assert verdict.divergence is not None
    assert verdict.divergence.seq == 7


def test_a_rank_that_refused_in_a_line_that_only_it_came_to_took_another_path() -> None:
    assert answer(forkpoint.diagnose(evidence_of(hanging_job(), line=70))) == (Cause.DIVERGENT_PATH, (REFUSING,))


def test_a_rank_that_refused_in_the_same_line_with_a_size_of_its_own_brought_other_arguments() -> None:
    verdict = forkpoint.diagnose(evidence_of(hanging_job(), line=10, expected=160))

    assert answer(verdict) == (Cause.METADATA_MISMATCH, (REFUSING,))
    assert "320 bytes where it expected 160" in verdict.summary


def test_a_size_that_the_line_has_in_other_rounds_leaves_open_whether_the_rank_is_some_calls_off() -> None:
    job = healthy_steps()
    job.op(size=LARGE // 2, line=10)  # its messages have 160 bytes
    job.op(OTHERS, size=LARGE, line=10, done=False)

    assert answer(forkpoint.diagnose(evidence_of(job, line=10, expected=160))) == (Cause.INCONCLUSIVE, (REFUSING,))


def test_a_known_line_that_never_waits_for_this_size_does_not_show_another_path() -> None:
    assert answer(forkpoint.diagnose(evidence_of(hanging_job(), line=50, expected=160))) == (
        Cause.INCONCLUSIVE,
        (REFUSING,),
    )


def test_in_an_all_to_all_either_end_may_be_wrong() -> None:
    job = healthy_steps()
    job.op(OTHERS, name="all_to_all", size=64, line=30, done=False)
    capture = evidence_of(job, line=30, sent=4096, expected=3584, call="all_to_all_single")

    assert answer(forkpoint.diagnose(capture)) == (Cause.METADATA_MISMATCH, ())


def test_two_threads_that_use_one_group_are_in_no_order_on_any_rank() -> None:
    job = healthy_steps()
    user = {"name": "run", "filename": "/train/train.py", "line": 70}
    for done in (True, False):
        job.op(None if done else OTHERS, size=1, frames=[user, THREADING], done=done)
        job.op(None if done else OTHERS, size=LARGE, line=10, done=done)
    verdict = forkpoint.diagnose(evidence_of(job, line=10, sent=320, expected=4))

    assert verdict.suspects == ()  # the evaluation in the main thread waits for 4 bytes as well
    assert verdict.cause is Cause.INCONCLUSIVE


def test_a_rank_at_the_other_threads_call_shows_that_the_order_differs() -> None:
    job = SmallJob(4, lib="gloo")
    user = {"name": "run", "filename": "/train/train.py", "line": 70}
    for done in (True, True, False):
        job.op(None if done else OTHERS, size=LARGE, line=10, done=done)
        job.op(None if done else OTHERS, size=1, frames=[user, THREADING], done=done)

    assert answer(forkpoint.diagnose(evidence_of(job, line=10))) == (Cause.ORDER_INVERSION, ())


def another_dump_missing() -> Capture:
    return hanging_job().capture((0, 2), events=(refused(320, 4),), stacks=(stood(50),), logs=LOGS)


def others_disagree() -> Capture:
    """The rank before the one that sends too much refuses: it is the victim, and the dumps tell it."""
    job = healthy_steps()
    job.op((0, 3), size=SMALL, line=50, done=False)
    job.op((2,), size=LARGE, line=10, done=False)
    return evidence_of(job, line=50)


def others_stand_in_different_slots() -> Capture:
    job = healthy_steps()
    job.op((0, 2), size=LARGE, line=10, done=False)
    return evidence_of(job, line=50)


def two_ranks_refused() -> Capture:
    capture = evidence_of(hanging_job(), line=50)
    return replace(capture, events=(*capture.events, refused(320, 4, rank=2)))


def no_stack() -> Capture:
    return replace(evidence_of(hanging_job(), line=50), stacks=())


def stack_of_an_earlier_moment() -> Capture:
    capture = evidence_of(hanging_job(), line=50)
    return replace(capture, stacks=(replace(stood(50), line=5),))


def in_recv() -> Capture:
    return evidence_of(hanging_job(), line=50, call="recv")


def in_no_call() -> Capture:
    """A recv that was begun before may be what refused."""
    alone = Frame("step", "/train/train.py", 50), Frame("<module>", "/train/train.py", 99)
    return replace(evidence_of(hanging_job(), line=50), stacks=(replace(stood(50), stack=alone),))


def no_call_of_that_size() -> Capture:
    return evidence_of(hanging_job(), line=50, sent=1000)


def sizes_free_just_before() -> Capture:
    job = healthy_steps()
    job.op(name="all_to_all", size=64, line=30)
    job.op(OTHERS, size=LARGE, line=10, done=False)
    return evidence_of(job, line=50)


def another_group_may_have_sent_it() -> Capture:
    job = healthy_steps(groups={"1": ("pair", (1, 2))})
    job.op((2,), size=LARGE, line=60, group="1")
    job.op(OTHERS, size=LARGE, line=10, done=False)
    return evidence_of(job, line=50)


def told_by_nccl() -> Capture:
    capture = evidence_of(hanging_job(), line=50)
    return replace(capture, events=(structs.replace(capture.events[0], pattern="nccl-truncated"),))


@for_each(
    "capture",
    [
        another_dump_missing,
        others_stand_in_different_slots,
        two_ranks_refused,
        no_stack,
        stack_of_an_earlier_moment,
        in_recv,
        in_no_call,
        no_call_of_that_size,
        sizes_free_just_before,
        another_group_may_have_sent_it,
        told_by_nccl,
    ],
)
def test_nobody_is_named_where_the_refused_message_may_come_from_elsewhere(capture: Callable[[], Capture]) -> None:
    assert answer(forkpoint.diagnose(capture())) == NOBODY


def test_the_victim_of_a_rank_that_sends_too_much_is_not_named() -> None:
    assert REFUSING not in forkpoint.diagnose(others_disagree()).suspects


def test_of_three_ranks_none_is_outside_a_majority_while_a_fourth_is_possible() -> None:
    job = healthy_steps(world=3)
    job.op((0, 2), size=LARGE, line=10, done=False)
    sent = next(iter(message_lengths(gloo("all_reduce", LARGE), 3) - {LARGE}))
    capture = job.capture((0, 2), events=(refused(sent, 4),), stacks=(stood(50),), logs=LOGS[:3])

    assert forkpoint.diagnose(capture).suspects == ()


def gloo(op: str, count: int, dtype: str = "Float") -> Signature:
    return Signature("gloo", op, None, ((count,),), (dtype,), ((count,),), (dtype,))


@for_each(
    ("signature", "length"),
    [
        (gloo("all_reduce", 6532), 3268),
        (gloo("all_reduce", 640), 320),
        (gloo("all_reduce", 640, "Half"), 160),
        (gloo("all_reduce", 1), 4),
        (gloo("all_gather", 845), 1690),
        (gloo("all_gather", 5), 10),
    ],
)
def test_lengths_are_those_that_gloo_was_seen_to_refuse(signature: Signature, length: int) -> None:
    assert length in message_lengths(signature, 4)


def test_where_an_aborted_rank_stood_is_read_from_its_log(tmp_path: Path) -> None:
    for rank in OTHERS:
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(hanging_job().dump(rank))
        (tmp_path / f"log_rank_{rank}.txt").write_text(
            f"[rank{rank}]: RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1.\n"
        )
    (tmp_path / f"log_rank_{REFUSING}.txt").write_text(
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        "  what():  [enforce fail at /gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 320 vs 4. "
        "Received data size doesn't match expected size.\n"
        "Fatal Python error: Aborted\n\n"
        "Thread 0x00007f8a5f9dbb80 (most recent call first):\n"
        f'  File "{C10D}", line 3252 in all_reduce\n'
        '  File "/train/train.py", line 50 in step\n'
        '  File "/train/train.py", line 99 in <module>\n'
    )

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert answer(verdict) == (Cause.DIVERGENT_PATH, (REFUSING,))
    assert any("its main thread was in all_reduce" in e.says for e in verdict.findings[0].evidence)


def refused_without_stack(folder: Path, call: str) -> Verdict:
    """Gloo ended rank 1 at once; the others lost their connections in this call."""
    ended = REFUSED.partition("Fatal Python error")[0]
    return diagnose(folder, logs({r: raised(r, CLOSED, call=call) for r in OTHERS} | {REFUSING: ended}))


def test_who_refuses_in_an_all_to_all_is_one_of_two_and_any_peer_may_be_the_other(tmp_path: Path) -> None:
    verdict = refused_without_stack(tmp_path, "all_to_all_single")

    pair = next(h for h in verdict.hypotheses if h.sides)
    assert answer(verdict) == (Cause.METADATA_MISMATCH, ())
    assert (pair.cause, pair.sides) == (Cause.METADATA_MISMATCH, ((0,), (2,), (3,), (REFUSING,)))
    assert "splits right before the all_to_all" in pair.decides


def test_in_a_call_of_one_size_for_all_no_pair_is_meant(tmp_path: Path) -> None:
    assert not any("all_to_all" in h.says for h in refused_without_stack(tmp_path, "all_reduce").hypotheses)
