"""Pipelines beside each other: who left the program of all its replicas, and where too few can tell."""

import random
from collections.abc import Container

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


def read(world: World, without: Container[int] = ()) -> Reading:
    dumps, reading = Dumps(world, SHORT), Reading()
    for rank in dumps.ranks():
        if rank not in without:
            reading.add_dump(f"nccl_trace_rank_{rank}", dumps.dump(rank))
    return reading


def verdict_of(world: World, without: Container[int] = ()) -> Verdict:
    return diagnose(read(world, without).capture())


def stalled_before(kind: Kind, mesh: Mesh = MANY) -> World:
    """A rank that stops before a call of this kind."""
    chance = random.Random(4)
    worlds = (plant(mesh, FaultKind.STALL, chance) for _ in range(200))
    return next(world for world in worlds if {slot.kind for slot in world.slots} == {kind})


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
    world = stalled_before(Kind.PP)

    verdict = verdict_of(world)

    assert (verdict.cause, verdict.suspects) == (Cause.HOST_STALL, (world.rank,))


def test_without_replicas_a_rank_that_owes_a_message_may_stand_in_a_call_that_is_not_recorded_yet() -> None:
    verdict = verdict_of(stalled_before(Kind.PP, ALONE))

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


# ---------------------------------------------------------------------------------------------------------------------
# A rank whose partner's dump was not collected.


def partners_of(world: World) -> set[int]:
    """Those with which the rank at fault exchanges messages."""
    stages = MANY.members(world.rank, Kind.PP)
    place = stages.index(world.rank)
    return {stages[place + by] for by in (-1, 1) if 0 <= place + by < len(stages)}


@for_each("kind", [FaultKind.NO_SEND, FaultKind.NO_RECV, FaultKind.MESSAGE_SIZE], one_in=3)
def test_a_message_that_was_skipped_is_seen_although_the_dump_of_its_other_end_is_missing(kind: FaultKind) -> None:
    world = plant(MANY, kind, random.Random(2))
    other = {end for slot in world.slots for end in slot.channel or ()} - {world.rank}

    verdict = verdict_of(world, without=other)

    assert verdict.suspects == (world.rank,)
    assert verdict.divergence is not None
    assert {verdict.divergence.channel} == {slot.channel for slot in world.slots}


def test_a_rank_that_did_what_its_replicas_did_is_not_blamed_for_a_partner_that_is_lost() -> None:
    world = plant(MANY, FaultKind.LOST, random.Random(4))

    assert verdict_of(world).suspects in {(), (world.rank,)}


def test_a_rank_whose_replicas_went_on_with_a_collective_waits_for_no_message_that_is_not_recorded() -> None:
    world = stalled_before(Kind.TP)

    verdict = verdict_of(world, without=partners_of(world))

    assert (verdict.cause, verdict.suspects) == (Cause.HOST_STALL, (world.rank,))


def test_a_rank_whose_replicas_went_on_with_a_message_may_wait_for_the_partner_whose_dump_is_missing() -> None:
    world = stalled_before(Kind.PP)

    assert verdict_of(world, without=partners_of(world)).cause is Cause.INCONCLUSIVE


def test_a_rank_that_waits_alone_in_a_call_it_made_too_many_parts_there_and_not_where_it_is_missed() -> None:
    chance = random.Random(3)
    worlds = (plant(MANY, FaultKind.EXTRA, chance) for _ in range(200))
    world = next(w for w in worlds if {slot.kind for slot in w.slots} == {Kind.WORLD} and w.ahead > 2)
    mates = {rank for rank in MANY.members(world.rank, Kind.TP) if rank != world.rank}

    verdict = verdict_of(world, without=sorted(mates)[:2])

    assert (verdict.cause, verdict.suspects) == (Cause.DIVERGENT_PATH, (world.rank,))
    assert verdict.divergence is not None
    assert {verdict.divergence.seq} == {slot.seq for slot in world.slots}
    assert "the others did not" in verdict.summary
