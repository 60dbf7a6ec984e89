"""Pipelines beside each other: who left the program of all its replicas, and where too few can tell."""

import random

import pytest

from bench.scale.dumps import Dumps
from bench.scale.faults import FaultKind, World, plant
from bench.scale.mesh import Kind, Mesh
from forkpoint.diverge.align import align
from forkpoint.diverge.habits import keeps_habit
from forkpoint.diverge.waits import find_cycle, find_waits
from forkpoint.evidence.reading import Reading
from forkpoint.model.verdict import Cause, Verdict
from forkpoint.pipeline import diagnose
from looping import for_each

MANY = Mesh(tp=4, ep=4, dp=1, pp=4)
"""Sixteen pipelines."""
TWO = Mesh(tp=2, ep=1, dp=1, pp=4)
ALONE = Mesh(tp=1, ep=1, dp=1, pp=4)
SHORT = 500


def read(world: World) -> Reading:
    dumps, reading = Dumps(world, SHORT), Reading()
    for rank in dumps.ranks():
        reading.add_dump(f"nccl_trace_rank_{rank}", dumps.dump(rank))
    return reading


def verdict_of(world: World) -> Verdict:
    return diagnose(read(world).capture())


def stalled_before_a_message(mesh: Mesh, seed: int) -> World:
    chance = random.Random(seed)
    worlds = (plant(mesh, FaultKind.STALL, chance) for _ in range(200))
    return next(world for world in worlds if {slot.kind for slot in world.slots} == {Kind.PP})


def test_the_end_of_a_channel_that_left_its_replicas_is_named_and_not_its_peer() -> None:
    world = plant(MANY, FaultKind.NO_SEND, random.Random(1))

    verdict = verdict_of(world)

    assert (verdict.cause, verdict.suspects) == (Cause.DIVERGENT_PATH, (world.rank,))
    assert verdict.divergence is not None
    assert {verdict.divergence.channel} == {slot.channel for slot in world.slots}


@pytest.mark.parametrize("seed", [38, 145])
def test_a_rank_for_which_a_call_is_new_is_not_blamed_where_all_its_replicas_made_it_too(seed: int) -> None:
    world = plant(MANY, FaultKind.NO_SEND, random.Random(seed))
    timeline = align(read(world).capture())
    waits = find_waits(timeline)
    entries = {rank: waits.stand(rank).record_id for rank in find_cycle(waits)}
    new_to = [rank for rank, entry in entries.items() if keeps_habit(timeline.traces[rank], entry) is False]

    assert new_to
    assert world.rank not in new_to
    assert verdict_of(world).suspects == (world.rank,)


@for_each("kind", [FaultKind.NO_SEND, FaultKind.NO_RECV, FaultKind.MESSAGE_SIZE])
def test_of_two_pipelines_either_may_be_the_odd_one(kind: FaultKind) -> None:
    assert verdict_of(plant(TWO, kind, random.Random(2))).suspects == ()


def test_a_message_that_is_counted_from_no_beginning_has_no_number() -> None:
    verdict = verdict_of(plant(MANY, FaultKind.NO_RECV, random.Random(3)))

    assert verdict.divergence is not None
    assert verdict.divergence.seq is None
    assert "a message of" in verdict.summary


def test_a_rank_whose_replicas_all_sent_next_stalls_on_the_cpu() -> None:
    world = stalled_before_a_message(MANY, seed=4)

    verdict = verdict_of(world)

    assert (verdict.cause, verdict.suspects) == (Cause.HOST_STALL, (world.rank,))


def test_without_replicas_a_rank_that_owes_a_message_may_stand_in_a_call_that_is_not_recorded_yet() -> None:
    verdict = verdict_of(stalled_before_a_message(ALONE, seed=4))

    assert (verdict.cause, verdict.suspects) == (Cause.INCONCLUSIVE, ())


def test_calls_in_another_order_are_seen_beside_replicas_when_the_own_past_is_too_short() -> None:
    chance = random.Random(21)
    worlds = (plant(MANY, FaultKind.ORDER, chance) for _ in range(50))
    world = next(world for world in worlds if world.ahead == 64)

    verdict = verdict_of(world)

    assert (verdict.cause, verdict.suspects) == (Cause.ORDER_INVERSION, (world.rank,))


def test_a_lost_rank_is_missed_in_the_collective_and_not_in_a_message_for_which_others_wait_anyway() -> None:
    chance = random.Random(5)
    worlds = (plant(MANY, FaultKind.LOST, chance) for _ in range(50))
    world = next(world for world in worlds if {slot.kind for slot in world.slots} == {Kind.TP})

    verdict = verdict_of(world)

    assert verdict.suspects == ()
    assert verdict.divergence is not None
    assert (verdict.divergence.seq, verdict.divergence.unknown) == (next(iter(world.slots)).seq, (world.rank,))
