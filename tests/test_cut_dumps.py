"""A dump that was cut holds the counters of its groups all the same: they stand before the entries."""

import pytest

import forkpoint
from forkpoint.evidence.reading import Reading
from forkpoint.model.verdict import Cause, Verdict
from small_jobs import SmallJob


class CountedJob(SmallJob):
    """Its dumps also count what is completed."""

    def _status(self, rank: int, group: str) -> dict[str, int]:
        own = [e for e in self.entries[rank] if e["process_group"][0] == group]
        done = [e["collective_seq_id"] for e in own if e["state"] == "completed"]
        return {**super()._status(rank, group), "last_completed_collective": done[-1] if done else -1}


def _stopped(cut: int, *, elsewhere: bool = False) -> Verdict:
    """Rank 2 does not come to the last all_reduce of four. `cut`: whose dump lacks its second half. `elsewhere`: rank 2 waits
    in a group of its own.
    """
    job = CountedJob(4, groups={"1": ("pair", (2, 3))})
    job.op(group="1")
    for _ in range(40):
        job.op()
    job.op(ranks=[0, 1, 3], done=False)
    if elsewhere:
        job.op(ranks=[2], group="1", line=50, done=False)
    reading = Reading()
    for rank in range(4):
        data = job.dump(rank)
        reading.add_dump(f"nccl_trace_rank_{rank}", data[: len(data) // 2] if rank == cut else data)
    return forkpoint.diagnose(reading.capture())


def test_counters_of_a_cut_dump_show_who_did_not_come_but_not_why() -> None:
    """A rank that is blocked inside the enqueue of another call does not count it yet."""
    verdict = _stopped(2)

    assert (verdict.cause, verdict.suspects) == (Cause.INCONCLUSIVE, ())
    assert [h.suspects for h in verdict.hypotheses] == [(2,), (2,)]
    assert "rank 2 last enqueued seq 40, according to its counters" in [evidence.says for evidence in verdict.evidence]


def test_a_rank_that_counts_more_calls_than_it_finished_is_not_said_to_be_idle() -> None:
    verdict = _stopped(2, elsewhere=True)

    assert (verdict.cause, verdict.suspects) == (Cause.INCONCLUSIVE, ())
    assert verdict.hypotheses[0].suspects == (2,)


@pytest.mark.parametrize("rank", [0, 3])
def test_counters_of_a_cut_dump_clear_a_rank_that_came(rank: int) -> None:
    verdict = _stopped(rank)

    assert (verdict.cause, verdict.suspects) == (Cause.HOST_STALL, (2,))
