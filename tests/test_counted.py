"""Dumps without entries: the counters of `pg_status` are positions, and say who is outside of all calls."""

from dataclasses import dataclass, field
from pathlib import Path

import forkpoint
from forkpoint.model.verdict import Cause, Verdict
from ingest.encode import encode
from looping import for_each

TP = {"1": ("tp", (0, 1)), "2": ("tp", (2, 3))}
DP = {"3": ("dp", (0, 2)), "4": ("dp", (1, 3))}
ALL = {"5": ("all", (0, 1, 2, 3))}
TIMED_OUT = (
    "[rank0]:[E1116 14:08:37.457825899 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, "
    "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=20000) ran for 20001 milliseconds before timing out.\n"
)


@dataclass
class Counted:
    """Ranks whose dumps hold counters alone: (enqueued, completed) of each group; by default nine enqueued, seven finished."""

    groups: dict[str, tuple[str, tuple[int, ...]]]
    odd: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)

    def diagnose(self, folder: Path, leave_out: tuple[int, ...] = (), log: str = TIMED_OUT) -> Verdict:
        for rank in (r for r in range(4) if r not in leave_out):
            own = {name: desc for name, (desc, members) in self.groups.items() if rank in members}
            config = {n: {"name": n, "desc": d, "ranks": str(list(self.groups[n][1]))} for n, d in own.items()}
            status = {str(i): _counters(*self.odd.get((rank, name), (9, 7))) for i, name in enumerate(own, 1)}
            held = {"version": "2.10", "pg_config": config, "comm_lib_version": "2.28.9", "pg_status": status}
            (folder / f"nccl_trace_rank_{rank}").write_bytes(encode(held))
        if log:
            (folder / "log_rank_0.txt").write_text(log)
        return forkpoint.diagnose(forkpoint.read([str(folder)]))


def _counters(made: int, done: int) -> dict[str, int]:
    return {"last_enqueued_collective": made, "last_started_collective": -1, "last_completed_collective": done}


def test_a_rank_that_lags_in_all_its_groups_with_nothing_pending_is_held_by_its_host(tmp_path: Path) -> None:
    verdict = Counted({**TP, **DP, **ALL}, {(2, name): (7, 7) for name in ("2", "3", "5")}).diagnose(tmp_path)

    assert (verdict.cause, verdict.suspects) == (Cause.HOST_STALL, (2,))
    assert verdict.divergence is not None
    assert (verdict.divergence.group.desc, verdict.divergence.hang_seq) == ("all", 8)
    assert [e.where for e in verdict.evidence if e.rank == 2] == ["pg_status"]


def test_in_a_single_group_it_may_be_held_in_a_call_that_is_not_counted_yet(tmp_path: Path) -> None:
    verdict = Counted(ALL, {(2, "5"): (7, 7)}).diagnose(tmp_path)

    assert verdict.cause is Cause.INCONCLUSIVE
    assert (verdict.hypotheses[0].cause, verdict.hypotheses[0].suspects) == (Cause.HOST_STALL, (2,))
    assert any("rank 2" in step for step in verdict.next)


@for_each(
    ("why", "odd"),
    [
        ("it has a call pending, so it waits itself", {(2, "2"): (8, 7), (2, "3"): (7, 7), (2, "5"): (7, 7)}),
        ("it is ahead elsewhere", {(2, "2"): (11, 10), (2, "3"): (7, 7), (2, "5"): (7, 7)}),
        ("members finished different numbers, as only messages allow", {(2, "5"): (5, 5), (1, "5"): (9, 6)}),
        ("everyone is finished", {(r, n): (7, 7) for r in range(4) for n in ("1", "2", "3", "4", "5")}),
    ],
)
def test_a_rank_of_which_counters_do_not_show_that_it_is_outside_is_not_named(
    why: str, odd: dict[tuple[int, str], tuple[int, int]], tmp_path: Path
) -> None:
    verdict = Counted({**TP, **DP, **ALL}, odd).diagnose(tmp_path)

    assert verdict.suspects == (), why


def test_members_without_counters_may_be_as_many_as_those_who_wait(tmp_path: Path) -> None:
    verdict = Counted({**TP, **DP, **ALL}, {(2, n): (7, 7) for n in ("2", "3", "5")}).diagnose(tmp_path, (0, 1))

    assert verdict.suspects == ()


def test_counters_of_a_job_that_nothing_shows_to_hang_accuse_nobody(tmp_path: Path) -> None:
    job = Counted({**TP, **DP, **ALL}, {(2, name): (7, 7) for name in ("2", "3", "5")})

    assert job.diagnose(tmp_path, log="step 7\n").suspects == ()
