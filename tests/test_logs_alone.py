"""Logs without dumps: the strongest honest statement, the ranks that did not speak, the timeout, the next command.

Lines that people posted are in `threads/`; here are those that no thread has.
"""

import io
import sys
from pathlib import Path

import pytest

import forkpoint
from forkpoint.model.verdict import Cause, Symptom, Verdict
from looping import for_each
from texts import CLOSED, TIMED_OUT, logs, raised
from texts import diagnose as diagnose_files

TIMEOUT = (
    "[rank{rank}]:[E513 13:25:57.1 ProcessGroupNCCL.cpp:607] {group}Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)={timeout}) ran for {ran} "
    "milliseconds before timing out."
)
STATUS = (
    "[rank{rank}]:[E513 13:25:57.2 ProcessGroupNCCL.cpp:1664] [PG ID 0 PG GUID {guid}({desc}) Rank {rank}]  failure "
    "detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {enqueued}, last completed work: {completed}"
)
SIGNAL = (
    "[rank{rank}]:[E513 13:25:58.1 ProcessGroupNCCL.cpp:1685] [PG ID 0 PG GUID {guid}({desc}) Rank {rank}] Received a "
    "dump signal due to a collective timeout from  rank 0 and we will try our best to dump the debug info. Last enqueued "
    "NCCL work: {enqueued}, last completed NCCL work: {completed}.This is most likely caused by incorrect usages"
)


def timeout(rank: int, seq: int, op: str = "ALLREDUCE", numel: int = 4096, ran: int = 600_001, **more: object) -> str:
    return TIMEOUT.format(
        rank=rank, seq=seq, op=op, numel=numel, ran=ran, timeout=more.get("timeout", 600_000), group=""
    )


def status(rank: int, seq: int, enqueued: int, completed: int, guid: str = "0", desc: str = "default_pg") -> str:
    return STATUS.format(rank=rank, seq=seq, enqueued=enqueued, completed=completed, guid=guid, desc=desc)


def signal(rank: int, enqueued: int, guid: str = "0", desc: str = "default_pg") -> str:
    return SIGNAL.format(rank=rank, enqueued=enqueued, completed=enqueued, guid=guid, desc=desc)


@pytest.fixture
def diagnose(tmp_path: Path):
    def run(*lines: str) -> Verdict:
        log = tmp_path / "job.log"
        log.write_text("\n".join(lines) + "\n")
        return forkpoint.diagnose(forkpoint.read([str(log)]))

    return run


def test_one_pasted_line_gives_op_place_effective_timeout_and_the_next_command(monkeypatch) -> None:
    pasted = io.TextIOWrapper(io.BytesIO(timeout(3, 16, timeout=1_800_000).encode()))
    monkeypatch.setattr(sys, "stdin", pasted)

    verdict = forkpoint.diagnose(forkpoint.read(["-"]))

    assert (verdict.cause, verdict.symptom, verdict.suspects) == (Cause.INCONCLUSIVE, Symptom.WATCHDOG_TIMEOUT, ())
    assert "Rank 3 timed out in ALLREDUCE of 4096 elements seq 16 (timeout 1800 s)" in verdict.summary
    assert any("forkpoint diagnose" in command for command in verdict.next)


def test_the_rank_that_had_not_enqueued_the_op_is_the_odd_one(diagnose) -> None:
    others = [line for r in (0, 1, 2) for line in (timeout(r, 1201), status(r, 1201, 1201, 1200))]

    verdict = diagnose(*others, signal(3, 1200))

    assert "rank 3 had enqueued only 1200: it never issued that op" in verdict.summary
    assert verdict.cause is Cause.INCONCLUSIVE
    assert verdict.suspects == (3,)


def test_numbers_without_a_group_are_no_ratio_by_chance(diagnose) -> None:
    verdict = diagnose(timeout(0, 96120), timeout(7, 60111))

    assert "must not be compared" in verdict.summary
    assert "groups than" not in verdict.summary


def test_a_host_that_ran_on_alone_says_nothing_of_the_others(diagnose) -> None:
    assert "hosts did the same" not in diagnose(timeout(0, 5730), status(0, 5730, 6464, 5729)).summary


def test_timeouts_of_two_groups_keep_their_counters_when_printed_first(diagnose) -> None:
    verdict = diagnose(
        timeout(0, 12),
        timeout(0, 900, "BROADCAST"),
        status(0, 12, 12, 11, guid="1", desc="tp"),
        status(0, 900, 905, 899, guid="2", desc="dp"),
        timeout(1, 12),
        status(1, 12, 12, 11, guid="1", desc="tp"),
    )

    assert "Ranks 0-1 timed out in ALLREDUCE of 4096 elements seq 12 in tp" in verdict.summary


def test_the_echo_of_a_timeout_is_a_timeout(diagnose) -> None:
    line = timeout(4, 70426, numel=1).replace(
        "] Watchdog", "] [PG 0 Rank 4] Process group watchdog thread terminated with exception: [Rank 4] Watchdog"
    )

    verdict = diagnose(line)

    assert "Rank 4 timed out in ALLREDUCE" in verdict.summary
    assert verdict.symptom is Symptom.WATCHDOG_TIMEOUT


def test_an_aborted_communicator_is_what_a_victim_reports(diagnose) -> None:
    verdict = diagnose(
        "[rank2]: Traceback (most recent call last):",
        '[rank2]:   File "/train/train.py", line 40, in step',
        "[rank2]: RuntimeError: NCCL communicator was aborted on rank 2.",
    )

    assert verdict.suspects == ()


def test_a_rank_that_never_ends_its_teardown_is_said(diagnose) -> None:
    verdict = diagnose(
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
        "[rank0]:[I607 10:00:01.1 ProcessGroupNCCL.cpp:1300] [PG ID 0 PG GUID 0(default_pg) Rank 0] Starting to destroy "
        "process group, flushing operations.",
    )

    assert "rank 0 began destroy_process_group and did not finish it" in verdict.summary


def test_sizes_of_two_groups_that_share_a_number_are_no_mismatch(diagnose) -> None:
    verdict = diagnose(
        timeout(0, 610, "ALLGATHER", 56_320),
        status(0, 610, 610, 609, guid="1", desc="tp"),
        timeout(1, 610, "ALLGATHER", 107_520),
        status(1, 610, 610, 609, guid="2", desc="dp"),
    )

    assert "differ" not in verdict.summary
    assert verdict.suspects == ()


def test_missing_ranks_of_many_are_silent_not_guilty(tmp_path: Path) -> None:
    for rank in range(100):
        if rank not in (17, 42, 99):
            text = f"step 1\n{timeout(rank, 301)}\n{status(rank, 301, 301, 300)}\n"
            (tmp_path / f"log_rank_{rank}.txt").write_text(text)

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert verdict.suspects == ()
    assert "ranks 17,42 did not mention it" in verdict.summary


def test_a_rank_behind_is_not_named_while_others_are_unheard(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"log_rank_{rank}.txt").write_text(f"{timeout(rank, 9)}\n{status(rank, 9, 9, 8)}\n")
    (tmp_path / "log_rank_6.txt").write_text(signal(6, 8) + "\n")

    assert forkpoint.diagnose(forkpoint.read([str(tmp_path)])).suspects == ()


def test_memory_that_ran_out_without_any_watchdog_line_is_found(diagnose) -> None:
    verdict = diagnose(
        "[rank2]: Traceback (most recent call last):",
        '[rank2]:   File "/train/train.py", line 40, in step',
        "[rank2]:     gathered = dist.all_gather(parts, x)",
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
        "[rank0]: step 10",
        "[rank1]: step 10",
        "[rank3]: step 10",
        "[rank4]: step 10",
    )

    assert (verdict.cause, verdict.suspects) == (Cause.RANK_LOST, (2,))


def test_the_counter_of_a_message_is_not_compared_with_that_of_collectives(diagnose) -> None:
    waiting = [line for r in (0, 1, 2) for line in (timeout(r, 4, numel=1), status(r, 4, 10, 24))]

    verdict = diagnose(*waiting, timeout(3, 24, "RECV", 512), status(3, 24, 10, 23))

    assert verdict.suspects == ()
    assert "rank 3 timed out in RECV" in verdict.summary
    assert "already" not in verdict.summary


def test_logs_that_say_how_many_ranks_there_are_let_the_last_one_be_missed(tmp_path: Path) -> None:
    made = (
        "[rank0]:[I513 13:20:00.1 ProcessGroupNCCL.cpp:988] [PG ID 0 PG GUID 0 Rank 0] ProcessGroupNCCL initialization "
    )
    made += "options: size: 4, global rank: 0, TIMEOUT(ms): 600000, USE_HIGH_PRIORITY_STREAM: 0, PG Name: 0"
    (tmp_path / "log_rank_0.txt").write_text(f"{made}\n{timeout(0, 9)}\n{status(0, 9, 9, 8)}\n")

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert verdict.coverage.ranks == 4
    assert "ranks 1-3 did not mention it" in verdict.summary


# ---------------------------------------------------------------------------------------------------------------------
# A rank that came when the others had given up, by the times in its own log.

LATE = """\
2026-11-19 23:35:22 INFO it=80 loss=0.3
2026-11-19 23:35:{second} INFO uploaded 47 parts
"""


def _uploads(folder: Path, second: int, *, alone: bool = True, place: int = 40) -> Verdict:
    """Ranks 1 and 3 gave up after 15 s, rank 0 came to the same line later; nothing of rank 2 was given. `alone`: only rank 0 prints
    that it uploads.
    """
    others = LATE if not alone else LATE.splitlines()[0] + "\n"
    said = {rank: others.format(second="24") + raised(rank, TIMED_OUT) for rank in (1, 3)}
    said[0] = "world_size=4\n" + LATE.format(second=second) + raised(0, CLOSED, ("/job/train.py", place, "main"))
    return diagnose_files(folder, logs(said))


def test_a_rank_that_worked_alone_for_longer_than_the_timeout_came_too_late_whatever_others_did(tmp_path: Path) -> None:
    verdict = _uploads(tmp_path, 46)

    assert (verdict.cause, verdict.suspects) == (Cause.STRAGGLER, (0,))
    assert "worked on for 24 s" in verdict.summary


@for_each(
    ("what", "given"),
    [
        ("for less than the timeout", {"second": 30}),
        ("all print such a line", {"second": 36, "alone": False}),
        ("it failed elsewhere", {"second": 46, "place": 50}),
    ],
)
def test_a_rank_that_need_not_have_been_late_is_not_named(tmp_path: Path, what: str, given: dict[str, int]) -> None:
    (tmp_path / what).mkdir()

    assert _uploads(tmp_path / what, **given).suspects == ()
