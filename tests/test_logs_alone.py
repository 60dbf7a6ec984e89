"""Logs without dumps: the strongest honest statement, the ranks that did not speak, the timeout, the next command.

The lines are those of public threads, as far as the threads give them.
"""

import io
import sys
from pathlib import Path

import pytest

import forkpoint
from forkpoint.model.verdict import Cause, Symptom, Verdict

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
OFF = (
    "[rank{rank}]:[E513 13:25:57.3 ProcessGroupNCCL.cpp:681] Stack trace of the failed collective not found, potentially "
    "because FlightRecorder is disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value."
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


def test_lines_without_a_group_are_not_compared(diagnose) -> None:
    """Rank 0 at 96120, rank 7 at 64088, and a watchdog that fired fourteen times too late: probably two groups."""
    verdict = diagnose(timeout(0, 96120, timeout=1_800_000, ran=25_625_000), timeout(7, 64088, timeout=1_800_000))

    assert verdict.suspects == ()
    assert "must not be compared" in verdict.summary


def test_a_watchdog_that_fires_far_too_late_was_held_up_itself(diagnose) -> None:
    verdict = diagnose(timeout(7, 64088, timeout=1_800_000, ran=25_625_000))

    assert "the watchdog fired after 25625 s: it was held up itself" in verdict.summary


def test_another_op_at_the_same_place_of_the_same_group_is_said_with_both_sides(diagnose) -> None:
    lines = [timeout(r, 7219, "BROADCAST", 64) + "\n" + status(r, 7219, 7219, 7218) for r in (1, 2)]

    verdict = diagnose(*lines, timeout(3, 7219, "BROADCAST", 24_084_544), status(3, 7219, 7219, 7218))

    assert "BROADCAST of 64 elements seq 7219" in verdict.summary
    assert "rank 3 BROADCAST of 24084544 elements: the calls differ" in verdict.summary


def test_sizes_of_two_groups_that_share_a_number_are_no_mismatch(diagnose) -> None:
    verdict = diagnose(
        timeout(0, 610, "ALLGATHER", 56_320),
        status(0, 610, 610, 609, guid="1", desc="tp"),
        timeout(1, 610, "ALLGATHER", 107_520),
        status(1, 610, 610, 609, guid="2", desc="dp"),
    )

    assert "differ" not in verdict.summary
    assert verdict.suspects == ()


def test_an_op_of_one_element_is_a_barrier_or_flag(diagnose) -> None:
    assert "still saving, loading or evaluating" in diagnose(timeout(2, 88, numel=1)).summary


def test_the_first_op_of_a_group_is_a_start_up_problem(diagnose) -> None:
    assert "start-up problem" in diagnose(timeout(0, 1, "BROADCAST", 1)).summary


def test_the_group_rank_in_brackets_is_not_a_rank(diagnose) -> None:
    line = timeout(15, 9).replace("] Watchdog", "] [Rank 1] Watchdog")

    assert "Rank 15 timed out" in diagnose(line).summary


def test_a_recorder_that_was_off_is_answered_with_the_variables(diagnose) -> None:
    verdict = diagnose(timeout(0, 9), OFF.format(rank=0))

    assert any("TORCH_FR_BUFFER_SIZE" in command for command in verdict.next)


def test_missing_ranks_of_many_are_silent_not_guilty(tmp_path: Path) -> None:
    for rank in range(100):
        if rank not in (17, 42, 99):
            text = f"step 1\n{timeout(rank, 301)}\n{status(rank, 301, 301, 300)}\n"
            (tmp_path / f"log_rank_{rank}.txt").write_text(text)

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert verdict.suspects == ()
    assert "ranks 17,42 said nothing of it" in verdict.summary


def test_a_rank_behind_is_not_named_while_others_are_unheard(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"log_rank_{rank}.txt").write_text(f"{timeout(rank, 9)}\n{status(rank, 9, 9, 8)}\n")
    (tmp_path / "log_rank_6.txt").write_text(signal(6, 8) + "\n")

    assert forkpoint.diagnose(forkpoint.read([str(tmp_path)])).suspects == ()


def test_a_rank_that_is_ahead_in_another_op_is_said(diagnose) -> None:
    """An all_gather of 513 elements on rank 0, two collectives after the broadcast in which the others wait."""
    others = [line for r in (1, 2, 3) for line in (timeout(r, 100, "BROADCAST", 5_164_000), status(r, 100, 100, 99))]

    verdict = diagnose(timeout(0, 102, "ALLGATHER", 513), status(0, 102, 102, 101), *others)

    assert "rank 0 is already in ALLGATHER of 513 elements seq 102" in verdict.summary
    assert verdict.suspects in ((), (0,))


def test_hosts_that_ran_on_alike_point_to_the_gpu_or_earlier(diagnose) -> None:
    verdict = diagnose(
        timeout(0, 5730, "BROADCAST", 1024),
        status(0, 5730, 6464, 5729),
        timeout(3, 5729, "BROADCAST", 1024),
        status(3, 5729, 6464, 5728),
    )

    assert "Rank 3 timed out in BROADCAST of 1024 elements seq 5729" in verdict.summary
    assert "all had enqueued up to 6464" in verdict.summary


def test_lines_that_ray_folded_are_asked_for(diagnose) -> None:
    ray = "(WorkerDict pid=123, ip=10.0.0.1) "

    verdict = diagnose(ray + timeout(15, 9), f"{ray}{timeout(14, 9)} [repeated 4x across cluster]")

    assert any("RAY_DEDUP_LOGS=0" in command for command in verdict.next)


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


def test_one_network_error_is_no_order_to_replace_a_node(diagnose) -> None:
    line = "node-2:5776:5902 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.2.0.5<33092> with error 12"

    verdict = diagnose(line, timeout(3, 77))

    assert verdict.suspects == ()
    assert verdict.action == "investigate"


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
    assert "ranks 1-3 said nothing of it" in verdict.summary
