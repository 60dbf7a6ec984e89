"""An exception that ends a thread of one rank, on which its main thread then waits: who does not come, and why."""

from pathlib import Path

import pytest

from forkpoint.model.verdict import Cause, Verdict
from texts import CLOSED, TIMED_OUT, diagnose, logs, raised

LINE = "12:00:0{0} step {0} loss 2.{0}\n"


def in_thread(error: str = "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9 in position 127") -> str:
    return (
        "Exception in thread prefetch:\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap_inner\n    self.run()\n'
        '  File "/usr/lib/python3.11/threading.py", line 982, in run\n    self._target(*self._args)\n'
        '  File "/job/prefetch.py", line 16, in fill\n    for item in items:\n' + error + "\n"
    )


def judged(folder: Path, own: str, others: str = "", ends: str = TIMED_OUT) -> Verdict:
    """`own`: what rank 3 printed after step 1. `others`: what each other rank printed there, before it gave up."""
    said = {r: LINE.format(1) + others + LINE.format(2) + raised(r, ends) for r in range(3)}
    return diagnose(folder, logs({**said, 3: LINE.format(1) + own}))


def test_a_rank_whose_thread_ended_and_that_did_not_come_is_stuck(tmp_path: Path) -> None:
    verdict = judged(tmp_path, in_thread() + LINE.format(2))

    assert (verdict.cause, verdict.suspects) == (Cause.HOST_STALL, (3,))
    assert verdict.headline.startswith("A thread of rank 3 ended by UnicodeDecodeError at prefetch.py:16 fill")


@pytest.mark.parametrize(
    ("own", "others", "ends"),
    [
        (in_thread() + LINE.format(2) + raised(3, TIMED_OUT), "", TIMED_OUT),
        (in_thread() + LINE.format(2), in_thread(), TIMED_OUT),
        (in_thread("ConnectionResetError: [Errno 104] Connection reset by peer"), "", TIMED_OUT),
        (in_thread() + LINE.format(2), "", CLOSED),
    ],
    ids=[
        "it waited as the others did",
        "a thread ended on all",
        "it ended because of its peers",
        "a process went away",
    ],
)
def test_a_thread_that_ended_explains_nothing_by_itself(tmp_path: Path, own: str, others: str, ends: str) -> None:
    verdict = judged(tmp_path, own, others, ends)

    assert "thread of rank 3" not in verdict.headline
    assert verdict.cause is not Cause.HOST_STALL
