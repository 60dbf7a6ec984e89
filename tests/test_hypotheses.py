"""Hypotheses: what is not decided is told as readings that survive replay, the best first, each with what decides it."""

from pathlib import Path

import forkpoint
from cases import examine_case, load_cases
from forkpoint.model.capture import LiveStack
from forkpoint.model.log import LogEvent, LogKind, Speaker
from forkpoint.model.op import Frame
from forkpoint.model.verdict import Cause, Hypothesis, Likelihood, Verdict
from looping import for_each
from small_jobs import SmallJob
from texts import stack

C10D = "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"


def _silent_rank(world: int = 4) -> SmallJob:
    job = SmallJob(world)
    job.op()
    job.op(ranks=range(1, world), done=False)
    return job


def _named(hypothesis: Hypothesis) -> set[int]:
    return {*hypothesis.suspects, *(rank for side in hypothesis.sides for rank in side)}


def _log(rank: int) -> tuple[str, int]:
    return f"log_rank_{rank}.txt", rank


@for_each("case", load_cases())
def test_what_is_not_decided_has_hypotheses_with_what_decides_each(case: object) -> None:
    verdict = examine_case(case.number).verdict
    if verdict.cause is Cause.HEALTHY:
        assert not verdict.hypotheses
        return
    assert verdict.hypotheses
    assert verdict.next
    assert all(h.says and h.decides for h in verdict.hypotheses)
    assert [h.likelihood for h in verdict.hypotheses[:1]] == [Likelihood.LIKELY]


@for_each("case", load_cases())
def test_the_first_hypothesis_of_a_decided_verdict_is_the_verdict(case: object) -> None:
    verdict = examine_case(case.number).verdict
    if verdict.cause not in (Cause.HEALTHY, Cause.INCONCLUSIVE):
        first = verdict.hypotheses[0]
        assert (first.cause, first.suspects) == (verdict.cause, verdict.suspects)


def test_a_rank_of_which_nothing_was_given_may_be_lost_or_stuck_and_goes_first() -> None:
    verdict = forkpoint.diagnose(_silent_rank().capture([1, 2, 3], logs=tuple(map(_log, (1, 2, 3)))))

    assert verdict.cause is Cause.INCONCLUSIVE
    first = verdict.hypotheses[0]
    assert (first.cause, first.suspects, first.alternatives) == (Cause.RANK_LOST, (0,), (Cause.HOST_STALL,))
    assert first.repair == "had rank 0 gone on, all 4 ranks would have gone on"
    assert "log of rank 0" in first.decides
    assert first.lacks == ("the dump of rank 0", "the log of rank 0", "the stack of rank 0")


def test_of_two_ranks_without_dumps_either_may_be_the_one() -> None:
    verdict = forkpoint.diagnose(_silent_rank().capture([2, 3]))

    assert {0, 1} <= _named(verdict.hypotheses[0])


def test_a_rank_whose_log_says_that_it_waits_in_the_same_call_is_not_missed() -> None:
    work = "WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=20000)"
    timed_out = _timeout(1, work)
    verdict = forkpoint.diagnose(_silent_rank().capture([2, 3], events=(timed_out,), logs=(_log(1),)))

    away = [h for h in verdict.hypotheses if h.cause in (Cause.RANK_LOST, Cause.HOST_STALL)]
    assert away
    assert all(1 not in _named(h) for h in away)


def _timeout(rank: int, text: str) -> LogEvent:
    from forkpoint.model.log import Work  # noqa: PLC0415 a value of this test alone

    work = Work(op="ALLREDUCE", seq=2, numel_in=4, numel_out=4, timeout_ms=20_000, ran_ms=20_100)
    return LogEvent(
        file=_log(rank)[0],
        line=3,
        kind=LogKind.WATCHDOG_TIMEOUT,
        text=text,
        rank=rank,
        speaker=Speaker(),
        work=work,
    )


def test_an_even_split_names_both_sides_and_what_each_did() -> None:
    job = SmallJob(4)
    job.op()
    job.op(ranks=[0, 1], name="all_reduce", line=20, done=False)
    job.op(ranks=[2, 3], name="all_gather", line=30, done=False)
    verdict = forkpoint.diagnose(job.capture())

    assert not verdict.suspects
    assert verdict.hypotheses[0].cause is Cause.DIVERGENT_PATH
    sides = next(h.sides for h in verdict.hypotheses if h.sides)
    assert set(sides) == {(0, 1), (2, 3)}


def test_a_healthy_job_caught_in_flight_is_the_first_reading_where_nothing_says_that_it_hung() -> None:
    verdict = forkpoint.diagnose(_gloo_in_flight())

    assert verdict.cause is Cause.INCONCLUSIVE
    assert verdict.hypotheses[0].cause is Cause.HEALTHY


def _gloo_in_flight() -> object:
    job = SmallJob(3, lib="gloo")
    job.op()
    job.op(ranks=[0, 1], done=False)
    return job.capture(logs=tuple(map(_log, range(3))))


def test_nobody_is_a_hypothesis_whom_replay_refuses() -> None:
    verdict: Verdict = forkpoint.diagnose(_silent_rank().capture([1, 2, 3]))

    assert all(h.repair for h in verdict.hypotheses if h.cause is not Cause.HEALTHY)
    assert all(not {1, 2, 3} >= set(h.suspects) or not h.suspects for h in verdict.hypotheses)


def test_where_nothing_shows_a_failure_the_ranks_that_left_no_file_are_the_second_reading(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        (tmp_path / f"log_rank_{rank}.txt").write_text("world size 4\nstep 7\n")

    healthy, other = forkpoint.diagnose(forkpoint.read([str(tmp_path)])).hypotheses

    assert (healthy.cause, other.suspects) == (Cause.HEALTHY, (2,))
    assert Cause.RANK_LOST in other.alternatives


def test_who_never_joined_is_looked_for_among_those_that_neither_complain_nor_wait(tmp_path: Path) -> None:
    refused = "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 3/4 clients joined."
    (tmp_path / "log_rank_0.txt").write_text(f"[rank0]: {refused}\n")
    for rank, call in ((1, "barrier"), (2, "barrier"), (3, None)):
        (tmp_path / f"stack_rank_{rank}.txt").write_text(stack(call=call))

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert [_named(h) for h in verdict.hypotheses[:2]] == [set(), {3}]
    assert {h.cause for h in verdict.hypotheses[:2]} == {Cause.NEVER_JOINED}


def test_a_rank_whose_stack_is_in_its_own_code_is_suspected_though_its_dump_waits_in_a_call() -> None:
    job = SmallJob(4, lib="gloo")
    job.op(line=40)
    job.op(ranks=[1], line=40, done=False)
    own = LiveStack(
        1, "stack_1.txt", 1, (Frame("clean", "/train/clean.py", 8), Frame("<module>", "/train/train.py", 47))
    )
    waits = LiveStack(0, "stack_0.txt", 1, (Frame("all_reduce", C10D, 3068), Frame("<module>", "/train/train.py", 40)))

    stuck = forkpoint.diagnose(job.capture(ranks=[1], stacks=(own, waits))).hypotheses[0]
    alone = forkpoint.diagnose(job.capture(ranks=[1], stacks=(own,))).hypotheses[0]

    assert (stuck.cause, stuck.suspects) == (Cause.HOST_STALL, (1,))
    assert "clean.py:8" in stuck.says
    assert alone.suspects != (1,)
