"""Dumps that were taken of a job that went on: by their last words, ranks ended in another call than the one in which their dumps wait."""

from typing import Any

import forkpoint
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from small_jobs import TORCH, SmallJob
from texts import CLOSED, raised, with_logs

CALL, LATER = 10, 30
THREAD = [
    TORCH,
    {"name": "run", "filename": "/train/train.py", "line": 38},
    {"name": "_bootstrap_inner", "filename": "/usr/lib/python3.12/threading.py", "line": 1073},
]
OLDER = "the dumps are of an earlier moment"


def ended(rank: int, line: int) -> list[str]:
    text = raised(rank, CLOSED, ("/train/train.py", line, "step"))
    return text.replace("/job/train.py", "/train/train.py").replace("line 90", "line 99").splitlines()


def judged(said: dict[int, list[str]], *, lib: str = "gloo", **changed: Any) -> Verdict:
    """By the dumps rank 0 waits in a call that ranks 2 and 3 have not issued; rank 1 left none."""
    job = SmallJob(4, lib=lib)
    for _ in range(3):
        job.op(line=CALL)
    job.op([0], line=CALL, done=False, **changed)
    return forkpoint.diagnose(with_logs(job.capture([0, 2, 3]), said))


def test_waits_that_ended_accuse_nobody() -> None:
    verdict = judged({0: ended(0, LATER), 2: ["step 35"], 3: ended(3, LATER)})

    assert any(note.startswith(OLDER) for note in verdict.coverage.notes)
    assert verdict.divergence is None
    assert all(h.divergence is None for h in verdict.hypotheses)


@for_each(
    "own, lib",
    [
        (ended(0, CALL), "gloo"),
        ([*ended(0, LATER), "12:00:07 caught it, and go on"], "gloo"),
        ([line for line in ended(0, LATER) if "<module>" not in line], "gloo"),
        (ended(0, LATER), "nccl"),
    ],
    ids=["it ended there", "it went on after its words", "it caught and logged it", "hosts run ahead"],
)
def test_waits_that_may_be_the_end_stay(own: list[str], lib: str) -> None:
    verdict = judged({0: own, 2: ["step 35"], 3: ended(3, LATER)}, lib=lib)

    assert not any(note.startswith(OLDER) for note in verdict.coverage.notes)
    assert verdict.divergence is not None


def test_a_wait_of_another_thread_goes_on_whatever_the_main_one_does() -> None:
    verdict = judged({0: ended(0, LATER), 2: ["step 35"], 3: ended(3, LATER)}, frames=THREAD)

    assert verdict.divergence is not None


def test_a_rank_that_died_later_is_found_beside_such_dumps() -> None:
    crashed = ["step 35", "Fatal Python error: Segmentation fault"]

    verdict = judged({0: ended(0, LATER), 1: ended(1, LATER), 2: crashed, 3: ended(3, LATER)})

    assert (verdict.cause, verdict.suspects) == (Cause.RANK_LOST, (2,))
