"""Ranks without a dump that nothing recorded keeps from the call in which others wait: one of them is to blame, and nobody else."""

import random
from collections.abc import Container

from bench.scale.dumps import Dumps
from bench.scale.faults import FaultKind, World, plant
from bench.scale.mesh import Kind, Mesh
from forkpoint.evidence.reading import Reading
from forkpoint.model.verdict import Cause, Verdict
from forkpoint.pipeline import diagnose

MESH = Mesh(tp=4, ep=4, dp=1, pp=4)
SHORT = 500


def _verdict(world: World, without: Container[int]) -> Verdict:
    dumps, reading = Dumps(world, SHORT), Reading()
    for rank in dumps.ranks():
        if rank not in without:
            reading.add_dump(f"nccl_trace_rank_{rank}", dumps.dump(rank))
    return diagnose(reading.capture())


def _meant(verdict: Verdict) -> set[int]:
    """Ranks that the first hypothesis names."""
    first = verdict.hypotheses[0]
    return {*first.suspects, *(rank for side in first.sides for rank in side)}


def _misfit(kind: Kind) -> World:
    """A call of this kind of group with another type on one rank, in the forward pass of a layer."""
    chance = random.Random(7)
    worlds = (plant(MESH, FaultKind.DTYPE, chance) for _ in range(200))
    return next(w for w in worlds if {slot.kind for slot in w.slots} == {kind} and MESH.stage(w.rank) == 1)


def _one_of_each_stage(world: World) -> set[int]:
    """Others without a dump: one per stage, in no group with the rank at fault but the whole job's."""
    point = MESH.point(world.rank)
    return {
        MESH.rank(point._replace(stage=stage, tp=(point.tp + 1) % 4, ep=(point.ep + 1 + stage) % 4))
        for stage in range(MESH.pp)
        if (stage, (point.ep + 1 + stage) % 4) != (point.stage, point.ep)
    }


def test_of_many_ranks_without_a_dump_the_one_that_nothing_holds_is_mostly_meant_alone() -> None:
    chance = random.Random(7)
    alone = 0
    for _ in range(6):
        world = plant(MESH, FaultKind.DTYPE, chance)

        verdict = _verdict(world, {world.rank, *_one_of_each_stage(world)})

        assert (verdict.cause, verdict.suspects) == (Cause.INCONCLUSIVE, ())
        assert world.rank in _meant(verdict)
        alone += _meant(verdict) == {world.rank}
    assert alone >= 3  # right after a message it may have been held in it


def test_two_ranks_that_are_missed_in_the_same_call_and_not_held_are_both_meant() -> None:
    world = _misfit(Kind.EP)
    mate = next(rank for rank in MESH.members(world.rank, Kind.EP) if rank != world.rank)

    verdict = _verdict(world, {world.rank, mate, *_one_of_each_stage(world)})

    assert verdict.suspects == ()
    assert {world.rank, mate} <= _meant(verdict)


def test_a_rank_that_may_be_held_by_another_without_a_dump_does_not_take_the_blame_from_it() -> None:
    """A stalled rank is missed by its neighbour of the next stage, which is missed by its tensor parallel group."""
    chance = random.Random(5)
    worlds = (plant(MESH, FaultKind.STALL, chance) for _ in range(200))
    world = next(w for w in worlds if {s.kind for s in w.slots} == {Kind.PP} and MESH.stage(w.rank) == 1)
    neighbour = MESH.at_stage(world.rank, 2)

    verdict = _verdict(world, {world.rank, neighbour})

    assert verdict.suspects == ()
    assert world.rank in _meant(verdict)
