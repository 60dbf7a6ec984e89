"""Dumps of the pending ops alone, of jobs that send messages in batches: the markers of finished batches are not in them."""

from pathlib import Path
from typing import Any

import forkpoint
from forkpoint.diverge.align import align
from forkpoint.model.timeline import Timeline
from forkpoint.model.verdict import Cause, Verdict
from ingest.encode import encode
from small_jobs import SmallJob

GROUPS = {
    "1": ("tp", (0, 1, 2)),
    "2": ("tp", (3, 4, 5)),
    "3": ("pp", (0, 3)),
    "4": ("pp", (1, 4)),
    "5": ("pp", (2, 5)),
}
WORLD = 6
ROUNDS = 3
TIMED_OUT = (
    "[rank0]:[E1116 14:08:37.457825899 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, "
    "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=20000) ran for 20001 milliseconds before timing out.\n"
)
NO_GIL = (
    "[rank1]:[E1116 14:08:53.801261186 ProcessGroupNCCL.cpp:1975] [PG ID 0 PG GUID 0(default_pg) Rank 1] Could not acquire GIL within 300 ms "
    "on exit, possible GIL induced hang\n"
)


class Pipeline(SmallJob):
    """Two stages of three ranks: a call of the stage, then a batch with one message from the first stage to the second."""

    def run(self, rounds: int = ROUNDS) -> "Pipeline":
        for _ in range(rounds):
            self.op(group="1")
            self.op(group="2")
            for group in ("3", "4", "5"):
                for rank in GROUPS[group][1]:
                    self.batch(rank, group)
        return self

    def batch(self, rank: int, group: str, *, done: bool = True, marked: bool = True, messages: int = 2) -> None:
        members = GROUPS[group][1]
        number = max((e["p2p_seq_id"] for e in self.entries[rank]), default=0) + 1
        fields: dict[str, Any] = {"state": "scheduled", "retired": False, "p2p_seq_id": number, "collective_seq_id": 0}
        for _ in range(messages):
            if rank == members[0]:
                self.send(*members, group=group, **fields)
            else:
                self.recv(*members[::-1], group=group, **fields)
        if marked:
            marker = {"p2p_seq_id": number, "collective_seq_id": 0, "input_sizes": [], "output_sizes": [], "done": done}
            self._add(rank, "nccl:coalesced", (), group, 20, marker)

    def dump(self, rank: int, buffer: int | None = None) -> bytes:
        own = self.entries[rank]
        config = {
            name: {"name": name, "desc": desc, "ranks": str(list(members))}
            for name, (desc, members) in self.groups.items()
            if rank in members
        }
        status = {name: _counters([e for e in own if e["process_group"][0] == name]) for name in config}
        held = [e for e in own if not e["retired"]]
        return encode(
            {"version": "2.10", "pg_config": config, "comm_lib_version": "2.28.9", "pg_status": status, "entries": held}
        )


def _counters(entries: list[dict[str, Any]]) -> dict[str, int]:
    works = [e for e in entries if not e["is_p2p"]]
    number = [e["p2p_seq_id"] or e["collective_seq_id"] for e in works]
    done = [n for n, e in zip(number, works, strict=True) if e["retired"]]
    return {
        "last_enqueued_collective": max(number, default=-1),
        "last_started_collective": -1,
        "last_completed_collective": max(done, default=-1),
    }


def stalled() -> Pipeline:
    """Rank 1 stops after three rounds; the others wait, some of them for those who wait for it."""
    job = Pipeline(WORLD, groups=dict(GROUPS)).run()
    job.op((0, 2), group="1", done=False)
    job.op(group="2", done=True)
    for group in ("3", "4", "5"):
        job.batch(GROUPS[group][1][1], group, done=False)
    return job


def timeline_of(job: Pipeline) -> Timeline:
    return align(job.capture())


def test_messages_whose_batch_is_finished_are_done_although_their_marker_is_left_out() -> None:
    timeline = timeline_of(stalled())

    assert timeline.blind == frozenset()
    assert set(timeline.stands) == {0, 2, 3, 4, 5}
    assert timeline.stands[0][0].group.desc == "tp"


def test_messages_of_a_batch_that_waits_are_pending() -> None:
    pending = [p for p in timeline_of(stalled()).positions[3] if p.channel]

    assert [p.channel for p in pending] == [(0, 3)]
    assert pending[0].op.batch == ROUNDS + 1


def test_a_rank_with_nothing_but_finished_batches_is_the_one_that_others_wait_for(tmp_path: Path) -> None:
    open_ = diagnose(stalled(), tmp_path)
    stuck = diagnose(stalled(), tmp_path, **{"log_rank_1.txt": NO_GIL})

    assert open_.cause is Cause.INCONCLUSIVE  # it may be blocked in a call that reads as done
    assert (open_.hypotheses[0].cause, open_.hypotheses[0].suspects) == (Cause.HOST_STALL, (1,))
    assert (stuck.cause, stuck.suspects) == (Cause.HOST_STALL, (1,))
    assert not any("some of its entries" in note for note in stuck.coverage.notes)


def diagnose(job: Pipeline, folder: Path, **logs: str) -> Verdict:
    for rank in range(WORLD):
        (folder / f"nccl_trace_rank_{rank}").write_bytes(job.dump(rank))
    for name, text in {"log_rank_0.txt": TIMED_OUT, **logs}.items():
        (folder / name).write_text(text)
    return forkpoint.diagnose(forkpoint.read([str(folder)]))


def test_a_message_on_its_own_is_there_only_while_it_is_pending() -> None:
    job = Pipeline(WORLD, groups=dict(GROUPS))
    job.op(group="1", done=True)
    job.send(0, 3, group="3", state="scheduled", retired=False)
    job.op((0,), group="1", done=True)
    job.send(0, 3, group="3", state="scheduled", retired=False)

    assert [p.channel for p in timeline_of(job).positions[0]] == [(0, 3)]


def test_a_batch_that_may_still_be_put_together_leaves_its_rank_open() -> None:
    """The group has collectives, too, so that its counter says nothing of messages."""
    job = Pipeline(WORLD, groups=dict(GROUPS)).run()
    job.op((0, 3), group="3", done=True)
    job.batch(0, "3", marked=False)
    for entry in job.entries[0]:
        if entry["is_p2p"]:
            entry["collective_seq_id"] = 1

    assert 0 in timeline_of(job).blind
