"""Groups that never come together, connections that break, and roots that no dump holds: what shows it, and what not."""

from dataclasses import replace
from typing import Any

import pytest

from forkpoint.diverge.align import align
from forkpoint.model.capture import Capture, LiveStack
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import Cause, Verdict
from forkpoint.pipeline import diagnose
from looping import for_each
from small_jobs import T0, SmallJob

TORCH = "/opt/lib/python3.12/site-packages/torch/distributed"
STEP = (Frame("step", "/train/train.py", 10), Frame("<module>", "/train/train.py", 99))
IN_NEW_GROUP = (Frame("new_group", f"{TORCH}/distributed_c10d.py", 5863), *STEP)
IN_RENDEZVOUS = (Frame("_env_rendezvous_handler", f"{TORCH}/rendezvous.py", 280), *STEP)
UNREACHABLE = "The client socket has timed out after 10000ms while trying to connect to (10.0.0.1, 29500)."


def said(rank: int, kind: LogKind, text: str, stack: Stack = STEP, **details: str) -> LogEvent:
    return LogEvent(kind, f"log_{rank}", 3, rank, text, stack=stack, exception="Error", details=tuple(details.items()))


def timed_out(rank: int, direction: str, stack: Stack = STEP) -> LogEvent:
    text = f"RuntimeError: Timed out waiting 10000ms for {direction} operation to complete"
    return said(rank, LogKind.PEER_TIMEOUT, text, stack, direction=direction)


def closed(rank: int, stack: Stack = STEP) -> LogEvent:
    return said(rank, LogKind.NETWORK, "RuntimeError: Connection closed by peer [10.0.0.1]:4411", stack)


def key_missing(rank: int) -> LogEvent:
    return said(rank, LogKind.STORE, "DistStoreError: wait timeout after 10000ms, keys: /0//2//cpu//0/2", IN_NEW_GROUP)


def unreachable(rank: int) -> LogEvent:
    return said(rank, LogKind.RENDEZVOUS, UNREACHABLE, IN_RENDEZVOUS, remote_host="10.0.0.1")


def stands(rank: int, stack: Stack) -> LiveStack:
    return LiveStack(rank, f"stacks_{rank}", 1, stack)


def heard(capture: Capture, *events: LogEvent, stacks: tuple[LiveStack, ...] = (), world: int = 4) -> Verdict:
    """With a log of every rank."""
    logs = tuple((f"log_{rank}", rank) for rank in range(world))
    return diagnose(replace(capture, events=events, stacks=stacks, logs=logs))


def broadcasting(done: tuple[int, ...], waiting: tuple[int, ...]) -> Capture:
    job = SmallJob(4, lib="gloo")
    job.op(done, name="broadcast")
    job.op(waiting, name="broadcast", done=False)
    job.op(done, name="broadcast", done=False)
    return job.capture()


def test_two_ranks_that_both_wait_to_send_a_broadcast_have_different_roots() -> None:
    words = (timed_out(0, "send"), timed_out(1, "recv"), timed_out(2, "send"), timed_out(3, "recv"))
    verdict = heard(broadcasting((1, 3), (0, 2)), *words)
    assert (verdict.cause, verdict.suspects) == (Cause.METADATA_MISMATCH, ())


@pytest.mark.parametrize(
    ("done", "waiting", "words"),
    [
        pytest.param((1, 3), (0, 2), (timed_out(0, "send"), timed_out(2, "recv")), id="one waits to receive"),
        pytest.param(
            (1, 2, 3), (0,), (timed_out(0, "send"),), id="a rank that left nothing may be the one that does not"
        ),
        pytest.param((1, 3), (0, 2), (timed_out(0, "send"), timed_out(2, "send", STEP[1:])), id="another call"),
        pytest.param((1,), (0, 2, 3), (timed_out(0, "send"), timed_out(2, "send")), id="one says nothing"),
    ],
)
def test_a_broadcast_that_a_lost_rank_or_link_could_hold_is_no_mismatch(
    done: tuple[int, ...], waiting: tuple[int, ...], words: tuple[LogEvent, ...]
) -> None:
    assert heard(broadcasting(done, waiting), *words).cause is Cause.INCONCLUSIVE


def watchdog(rank: int) -> LogEvent:
    return LogEvent(LogKind.WATCHDOG_TIMEOUT, f"log_{rank}", 3, rank, "Watchdog caught collective operation timeout")


@for_each("started", [False, True])
@for_each("done_since", [False, True])
def test_the_first_call_after_a_broadcast_is_no_stall_since_roots_may_differ(done_since: bool, started: bool) -> None:
    began: dict[str, Any] = {"time_discovered_started_ns": T0} if started else {}
    job = SmallJob(4)
    job.op(name="broadcast", **began)
    if done_since:
        job.op(**began)
    job.op(done=False, state="started" if started else "scheduled", **began)
    verdict = heard(job.capture(), *map(watchdog, range(4)))
    stalled = Cause.TRANSPORT if started else Cause.GPU_STALL
    assert verdict.cause is (stalled if done_since else Cause.INCONCLUSIVE)


def reducing(pending: tuple[int, ...] = ()) -> Capture:
    job = SmallJob(4, lib="gloo")
    job.op(name="all_gather", output_sizes=[[4, 4]])
    job.op(tuple(rank for rank in range(4) if rank not in pending))
    job.op(pending, done=False)
    return job.capture()


@for_each("pending", [(), (0,), (0, 1, 2, 3)])
def test_connections_that_close_on_every_rank_in_one_call_are_the_networks(pending: tuple[int, ...]) -> None:
    verdict = heard(reducing(pending), *map(closed, range(4)))
    assert (verdict.cause, verdict.suspects) == (Cause.TRANSPORT, ())


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((closed(0), closed(1), closed(2)), id="one says nothing, and may have ended first"),
        pytest.param((*map(closed, range(3)), closed(3, STEP[1:])), id="one lost it in another call"),
        pytest.param((*map(closed, range(4)), timed_out(2, "recv")), id="one gave up first"),
        pytest.param((*map(closed, range(4)), said(1, LogKind.EXCEPTION, "ValueError: bad")), id="one raised first"),
    ],
)
def test_connections_that_a_rank_may_have_closed_are_not_the_networks(words: tuple[LogEvent, ...]) -> None:
    verdict = heard(reducing(), *words)
    assert verdict.cause is not Cause.TRANSPORT
    assert not verdict.suspects


def test_a_rank_that_left_nothing_at_all_may_have_closed_them() -> None:
    job = SmallJob(4, lib="gloo")
    job.op()
    assert heard(job.capture(), *map(closed, range(4))).cause is Cause.INCONCLUSIVE


def test_an_all_gather_of_gloo_tells_how_many_ranks_there_are() -> None:
    job = SmallJob(4, lib="gloo")
    job.op(name="all_gather", output_sizes=[[4, 4]])
    assert align(job.capture((0, 1))).world == (0, 1, 2, 3)
    assert align(job.capture((0, 1))).unseen == 0


def test_tokens_that_a_rank_without_evidence_may_have_got_do_not_unbalance_an_all_to_all() -> None:
    job = SmallJob(4, lib="gloo")
    for rank in range(4):
        job.op((rank,), name="all_to_all", size=8, output_sizes=[[10 if rank == 3 else 22 // 3]])
    assert heard(job.capture((0, 1, 2)), world=3).cause is not Cause.METADATA_MISMATCH


def test_dumps_of_gloo_without_logs_do_not_show_that_a_job_is_healthy() -> None:
    assert diagnose(reducing()).cause is Cause.INCONCLUSIVE
    assert heard(reducing()).cause is Cause.HEALTHY


def agreed() -> Capture:
    job = SmallJob(4, lib="gloo")
    job.op()
    return job.capture()


def test_a_group_that_all_ranks_make_and_none_gets_never_came_together() -> None:
    words = (key_missing(0), key_missing(1), key_missing(3))
    verdict = heard(agreed(), *words, stacks=(stands(2, IN_NEW_GROUP),))
    assert (verdict.cause, verdict.suspects) == (Cause.NEVER_JOINED, ())


@pytest.mark.parametrize("stacks", [(), (stands(2, STEP),)])
def test_a_rank_that_is_not_seen_making_the_group_may_be_held_or_gone(stacks: tuple[LiveStack, ...]) -> None:
    verdict = heard(agreed(), key_missing(0), key_missing(1), key_missing(3), stacks=stacks)
    assert (verdict.cause, verdict.suspects) == (Cause.INCONCLUSIVE, ())


def seeking(*words: LogEvent, stacks: dict[int, Stack]) -> Verdict:
    nothing = SmallJob(4).capture(())
    return heard(nothing, *words, stacks=tuple(stands(rank, stack) for rank, stack in stacks.items()))


def test_the_host_of_the_store_that_stands_elsewhere_did_not_join() -> None:
    verdict = seeking(*map(unreachable, (1, 2, 3)), stacks={0: STEP, 1: IN_RENDEZVOUS})
    assert (verdict.cause, verdict.suspects) == (Cause.NEVER_JOINED, (0,))


@pytest.mark.parametrize(
    ("words", "stacks"),
    [
        pytest.param(map(unreachable, (0, 1, 3)), {0: IN_RENDEZVOUS, 2: STEP}, id="another rank stands elsewhere"),
        pytest.param(map(unreachable, (0, 1, 2, 3)), {0: STEP}, id="rank 0 seeks it too"),
        pytest.param(map(unreachable, (1, 2, 3)), {1: IN_RENDEZVOUS}, id="nothing shows where rank 0 stands"),
        pytest.param(
            (*map(unreachable, (1, 2, 3)), said(1, LogKind.AGENT_STOP, "Sending process 7 closing signal SIGTERM")),
            {0: STEP},
            id="an agent may host it",
        ),
    ],
)
def test_a_store_that_cannot_be_reached_accuses_nobody_else(
    words: tuple[LogEvent, ...], stacks: dict[int, Stack]
) -> None:
    assert not seeking(*words, stacks=stacks).suspects


# ---------------------------------------------------------------------------------------------------------------------
# Batches of messages that wait for each other.


def neighbours(states: dict[int, str], missing: int | None = None) -> Capture:
    """Three ranks in a row exchange with their neighbours, each in one batch, four times; the last batch hangs in these states."""
    job = SmallJob(3, groups={"1": ("pipe", (0, 1, 2))})
    for turn in range(1, 5):
        done = turn < 4
        for rank in range(3):
            if rank == missing and not done:
                continue
            began = None if states[rank] == "scheduled" and not done else T0 + job.now
            how: dict[str, Any] = {"done": done, "p2p_seq_id": turn, "time_discovered_started_ns": began}
            how |= {} if done else {"state": states[rank]}
            for peer in (rank - 1, rank + 1):
                if peer in range(3):
                    job.send(rank, peer, "1", **how)
                    job.recv(rank, peer, "1", **how)
    return job.capture()


def test_ranks_whose_batches_hold_messages_of_each_other_are_no_ring_and_the_one_that_did_not_start_is_named() -> None:
    verdict = heard(neighbours({0: "started", 1: "scheduled", 2: "started"}), *map(watchdog, range(3)))

    assert (verdict.cause, verdict.suspects) == (Cause.GPU_STALL, (1,))
    assert verdict.headline.startswith("The GPU of rank 1 never started the message")


def test_batches_that_all_run_accuse_nobody_of_another_order() -> None:
    verdict = heard(neighbours(dict.fromkeys(range(3), "started")), *map(watchdog, range(3)))

    assert verdict.suspects == ()
    assert verdict.cause not in (Cause.ORDER_INVERSION, Cause.DIVERGENT_PATH, Cause.GPU_STALL)


def test_a_rank_that_did_not_come_holds_the_batches_behind_its_neighbours_as_well() -> None:
    verdict = heard(neighbours(dict.fromkeys(range(3), "started"), missing=2), *map(watchdog, range(2)))

    assert verdict.divergence is not None
    assert verdict.divergence.odd == (2,)


# ---------------------------------------------------------------------------------------------------------------------
# Start events of a job whose dumps hold only what is pending, and one link that carries several groups.

PAIRS = {str(number): ("replicas", (number - 1, number + 3)) for number in range(1, 5)}


def pairs(states: dict[str, tuple[str, str]], *, partial: bool = False) -> Verdict:
    """Four pairs, each in a group of its own: the states of their second call on both members, where it has not finished."""
    job = SmallJob(8, groups=dict(PAIRS))
    for group in PAIRS:
        job.op(group=group, time_discovered_started_ns=T0)
    for group, (_, members) in PAIRS.items():
        for rank, state in zip(members, states.get(group, ()), strict=False):
            began = T0 + job.now if state == "started" else None
            job.op((rank,), group=group, done=False, state=state, time_discovered_started_ns=began)
    if partial:
        job.entries = {rank: [e for e in own if not e["retired"]] for rank, own in job.entries.items()}
    return heard(job.capture(), *(watchdog(int(group) - 1) for group in states), world=8)


RUNS = ("started", "started")


def test_a_rank_whose_dump_leaves_out_what_is_done_did_not_start_where_other_dumps_have_start_times() -> None:
    verdict = pairs({"2": ("scheduled", "started")}, partial=True)

    assert (verdict.cause, verdict.suspects) == (Cause.GPU_STALL, (1,))


def test_without_start_times_in_any_dump_it_is_not_known() -> None:
    assert pairs({"2": ("scheduled", "scheduled")}, partial=True).suspects == ()


def test_groups_that_stop_side_by_side_though_all_members_run_wait_for_one_link() -> None:
    verdict = pairs({"1": RUNS, "3": RUNS, "4": RUNS})

    assert (verdict.cause, verdict.suspects) == (Cause.TRANSPORT, ())
    assert "in 3 groups of which none finishes" in verdict.headline


def test_of_groups_that_stop_side_by_side_one_member_has_not_started() -> None:
    assert pairs({"1": RUNS, "3": ("started", "scheduled")}).cause is not Cause.TRANSPORT
