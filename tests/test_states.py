"""How far an op really came, against what its dump says."""

from forkpoint.diverge.align import align
from forkpoint.model.op import OpState
from small_jobs import SmallJob


def _state(job: SmallJob, rank: int) -> OpState | None:
    positions = align(job.capture()).positions[rank]
    return positions[0].op.state if positions else None


def test_an_op_above_the_last_enqueued_one_has_not_completed_whatever_it_reads() -> None:
    job = SmallJob(2)
    job.op()
    job.op(retired=False, _entering=True)

    assert _state(job, 0) is OpState.ENTERING


def test_a_completed_op_that_the_watchdog_has_not_retired_yet_is_done() -> None:
    job = SmallJob(2)
    job.op()
    job.op(retired=False)

    assert _state(job, 0) is None


def test_an_op_that_completed_after_its_timeout_was_aborted() -> None:
    job = SmallJob(2, timeout_ms=100)
    job.op()
    job.op(retired=False, time_discovered_completed_ns=2_000_000_000_000_000_000)

    assert _state(job, 0) is OpState.ABORTED


def test_gloo_ops_are_judged_by_retired_because_their_state_never_changes() -> None:
    job = SmallJob(2, lib="gloo")
    job.op()
    job.op(done=False)

    assert _state(job, 0) is OpState.SCHEDULED
    assert align(job.capture()).groups[0].track(0).last_done.seq == 1


def test_messages_of_a_batch_have_the_state_of_the_marker_that_closes_it() -> None:
    job = SmallJob(2)
    job.send(0, 1, state="scheduled", retired=False)
    job._add(0, "nccl:coalesced", (), "0", 20, {"p2p_seq_id": 1, "input_sizes": [], "output_sizes": [], "done": True})

    (channel,) = align(job.capture(ranks=[0])).channels

    assert channel.sent.last_done.seq == 1
    assert align(job.capture(ranks=[0])).groups[0].track(0) is None
