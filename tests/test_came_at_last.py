"""Ranks that are missed by the dumps, and whose logs show that they came to the call when the others had given up."""

import forkpoint
from forkpoint.evidence.text import find_time, read_stamp
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from small_jobs import SmallJob
from texts import CLOSED, TIMED_OUT, raised, with_logs

CALL, AFTER = 10, 30
"""The line of the call in which ranks wait, and of another one."""


def failed(rank: int, error: str, line: int = CALL) -> list[str]:
    text = raised(rank, error, ("/train/train.py", line, "step"))
    return text.replace("/job/train.py", "/train/train.py").replace("line 90", "line 99").splitlines()


def judged(own: list[str], *, dumps: tuple[int, ...] = (0, 1, 2, 3)) -> Verdict:
    """Ranks 0 to 2 time out after 15 s in a call that rank 3's dump does not hold, or lose their connections there. `own`: how the log
    of rank 3 goes on after second 20.
    """
    job = SmallJob(4, lib="gloo", timeout_ms=15_000)
    for _ in range(3):
        job.op(line=CALL)
    job.op([0, 1, 2], line=CALL, done=False)
    steps = [f"11-19 01:28:{second} | step {second} loss 2.{second}" for second in (18, 19, 20)]
    said = {r: [*steps, *failed(r, CLOSED if r == 1 else TIMED_OUT)] for r in range(3)} | {3: [*steps, *own]}
    return forkpoint.diagnose(with_logs(job.capture(dumps), said))


def prepared(second: int) -> list[str]:
    return [f"11-19 01:28:{s} | prepared {s} of 60 files" for s in range(22, second, 2)]


def test_a_rank_that_worked_for_longer_than_the_timeout_and_then_came_was_late() -> None:
    verdict = judged([*prepared(40), *failed(3, CLOSED)])

    assert (verdict.cause, verdict.suspects) == (Cause.STRAGGLER, (3,))
    assert verdict.headline.startswith("Rank 3 reached all_reduce (train.py:10) when the others had given up there")


def test_the_dump_of_a_rank_that_is_missed_may_be_lost_if_it_came() -> None:
    assert judged([*prepared(40), *failed(3, CLOSED)], dumps=(0, 1, 2)).cause is not Cause.HOST_STALL


@for_each(
    "own",
    [
        [*prepared(30), *failed(3, CLOSED)],
        [*prepared(40), *failed(3, CLOSED, AFTER)],
        [*prepared(40), *failed(3, TIMED_OUT)],
        prepared(40),
    ],
    ids=["it did not work for so long", "it is in another call", "it waited there itself", "it never came"],
)
def test_others_are_not_called_late(own: list[str]) -> None:
    assert judged(own).cause is not Cause.STRAGGLER


def test_a_rank_that_came_is_not_stuck_for_ever_and_how_late_it_was_is_asked() -> None:
    verdict = judged([*prepared(30), *failed(3, CLOSED)])

    assert verdict.cause is Cause.INCONCLUSIVE
    assert (verdict.hypotheses[0].cause, verdict.hypotheses[0].suspects) == (Cause.STRAGGLER, (3,))
    assert verdict.next


def test_a_rank_that_came_is_not_stuck_for_ever_whoever_is_known_to_have_given_up() -> None:
    job = SmallJob(4, lib="gloo", timeout_ms=15_000)
    job.op(line=CALL)
    job.op([0, 1, 2], line=CALL, done=False)
    said = {1: failed(1, TIMED_OUT, AFTER), 3: failed(3, CLOSED)}

    verdict = forkpoint.diagnose(with_logs(job.capture(), said))

    assert verdict.cause is not Cause.HOST_STALL
    assert verdict.hypotheses[0].cause is Cause.STRAGGLER


def test_a_time_without_a_year_is_read_at_the_head_of_a_line_or_of_a_column() -> None:
    for text in ("11-19 01:28:37.345 | step 1", "INFO 11-19 01:28:37 worker.py:12] step 1", "[11-19 01:28:37] step 1"):
        stamp = read_stamp(find_time(text) or "")
        assert stamp is not None
        assert (stamp.year, stamp.month, stamp.day, stamp.second) == (None, 11, 19, 37)
    for text in ("2026-11-19 01:28:37", "run-11-19 01:28:37"):
        found = find_time(text)
        assert found is None or found.startswith("2026")
