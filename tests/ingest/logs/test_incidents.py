"""The logs of six recorded jobs, rank by rank."""

from pathlib import Path

from forkpoint.evidence.logs import LogKind, LogReading, read_log
from forkpoint.model.log import QUIET
from looping import for_each

CASES = Path(__file__).parents[3] / "cases"

ASKED = ["dump-signal", "dump-signal", "dumped", "dumped", "dumped"]
TIMED_OUT = ["watchdog-timeout", "group-status"]
EXPECTED = {
    ("0001", 0): ASKED,
    ("0001", 1): [*TIMED_OUT, "recorder-off", *ASKED],
    ("0001", 2): [*TIMED_OUT, "recorder-off", *ASKED],
    ("0001", 3): [*TIMED_OUT, "recorder-off", *ASKED],
    ("0002", 0): ["network", "async-error", "group-status", "collective-stack", *ASKED],
    ("0002", 1): [*ASKED, *TIMED_OUT, "collective-stack"],
    ("0002", 2): [*ASKED, *TIMED_OUT, "collective-stack"],
    ("0002", 3): ["exception", "left", "left"],
    ("0003", 0): ASKED,
    ("0003", 1): [*TIMED_OUT, "collective-stack", *ASKED],
    ("0003", 2): [*TIMED_OUT, *ASKED, "collective-stack", "network", "network"],
    ("0003", 3): [*TIMED_OUT, "collective-stack", *ASKED],
    ("0004", 0): [*TIMED_OUT, "recorder-off", *ASKED, "leaving"],
    ("0004", 1): [*TIMED_OUT, *ASKED[:3], "recorder-off", *ASKED[3:], "leaving"],
    ("0004", 2): [*TIMED_OUT, *ASKED[:3], "recorder-off", *ASKED[3:], "leaving"],
    ("0004", 3): [*TIMED_OUT, *ASKED, "recorder-off", "leaving"],
    ("0005", 0): [*TIMED_OUT, *ASKED, "recorder-off"],
    ("0005", 1): [*TIMED_OUT, *ASKED, "collective-stack"],
    ("0005", 2): [*TIMED_OUT, *ASKED, "recorder-off"],
    ("0005", 3): [*TIMED_OUT, "collective-stack", *ASKED],
    ("0006", 0): ["leaving", "left", "left"],
    ("0006", 1): ["leaving", "left", "left"],
    ("0006", 2): ["leaving", "left", "left"],
    ("0006", 3): ["leaving", "left", "left"],
}


def read_case(case: str, rank: int) -> LogReading:
    return read_log((CASES / case / "capture" / f"log_rank_{rank}.txt").read_bytes(), f"log_rank_{rank}.txt", rank)


@for_each(("case", "rank"), EXPECTED)
def test_each_rank_says_what_it_said(case: str, rank: int) -> None:
    reading = read_case(case, rank)

    assert [str(e.kind) for e in reading.events if e.kind not in QUIET] == EXPECTED[case, rank]
    assert {e.rank for e in reading.events} | reading.speakers == {rank}
    assert (reading.problems, reading.left_out) == ((), ())


def test_the_rank_that_never_called_has_enqueued_less_than_the_others() -> None:
    counters = {
        rank: next(e.counters for e in read_case("0003", rank).events if e.counters and e.kind is LogKind.DUMP_SIGNAL)
        for rank in range(4)
    }

    assert {rank: (told.enqueued, told.completed) for rank, told in counters.items()} == {
        0: (22, 22),
        1: (24, 22),
        2: (24, 22),
        3: (24, 22),
    }


def test_the_thread_that_holds_the_stalled_rank_is_told() -> None:
    stacks = [e for e in read_case("0003", 0).events if e.detail("current") == "Current thread"]

    assert "_upload" in [frame.name for frame in stacks[0].stack]


def test_six_jobs_in_one_file_each_give_the_same_as_rank_by_rank() -> None:
    for case in sorted({case for case, _ in EXPECTED}):
        alone = {rank: read_case(case, rank) for rank in range(4)}
        joined = b"".join(
            b"%d: %s\n" % (rank, line)
            for rank in range(4)
            for line in (CASES / case / "capture" / f"log_rank_{rank}.txt").read_bytes().splitlines()
        )
        together = read_log(joined, "all", None)
        for rank, reading in alone.items():
            assert [(e.kind, e.text, e.seq, e.stack) for e in together.events if e.rank == rank] == [
                (e.kind, e.text, e.seq, e.stack) for e in reading.events
            ]
        assert together.speakers == {0, 1, 2, 3}
