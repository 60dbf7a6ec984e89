"""Worlds for measuring scale: they run as jobs would, hang as planted, and are told exactly by the engine."""

import pickle
import random

import pytest

from bench.pickler import Frame
from bench.scale.accuracy import Damage, try_faults
from bench.scale.blocked import run_until_blocked
from bench.scale.dumps import Dumps
from bench.scale.faults import FaultKind, World, one_world, plant
from bench.scale.mesh import Kind, Mesh
from bench.scale.plot import Line, draw
from bench.scale.program import Batch, entries, one_step
from bench.scale.score import Score
from forkpoint.evidence.reading import Reading
from forkpoint.pipeline import diagnose
from looping import for_each

MESH = Mesh(tp=4, ep=4, dp=2, pp=4)
SHORT = 500
"""Entries of a ring buffer: more than two steps."""


def diagnosed(world: World, leave_out: frozenset[int] = frozenset()) -> Score:
    dumps, reading = Dumps(world, SHORT), Reading()
    for rank in dumps.ranks():
        if rank not in leave_out:
            reading.add_dump(f"nccl_trace_rank_{rank}", dumps.dump(rank))
    return Score.of(diagnose(reading.capture()), world)


@for_each("ranks", [64, 256, 1024, 8192, 100_000])
def test_a_mesh_has_all_ranks_and_groups_in_which_a_vote_is_possible(ranks: int) -> None:
    mesh = Mesh.of(ranks)

    assert mesh.ranks == ranks
    assert min(mesh.tp, mesh.ep, mesh.pp) >= 4


def test_every_rank_is_in_its_groups_and_its_mates_name_them_alike() -> None:
    for rank in range(MESH.ranks):
        for kind in Kind:
            members = MESH.members(rank, kind)
            assert rank in members
            assert {MESH.group_name(mate, kind) for mate in members} == {MESH.group_name(rank, kind)}


def test_groups_of_one_name_are_one_group() -> None:
    members = {(MESH.group_name(rank, kind), MESH.members(rank, kind)) for rank in range(MESH.ranks) for kind in Kind}

    assert len({name for name, _ in members}) == len(members)


def test_without_a_fault_nobody_is_blocked() -> None:
    programs = {place: one_step(MESH, place.stage) * 2 for place in MESH.places()}

    reach = run_until_blocked(MESH, programs, ahead=4)

    assert {reach[place].done - len(units) for place, units in programs.items()} == {0}


def test_the_places_of_all_ranks_are_those_that_are_simulated() -> None:
    places = {MESH.place(rank, of=77) for rank in range(MESH.ranks)}

    assert places == set(MESH.places())


def test_hosts_run_ahead_of_the_call_in_which_they_are_held_and_no_further() -> None:
    world = plant(MESH, FaultKind.SIZE, random.Random(5))

    assert {reach.issued - reach.done for reach in world.reach.values()} == {world.ahead + 1}


def test_a_rank_that_stalls_has_done_all_it_issued() -> None:
    world = plant(MESH, FaultKind.STALL, random.Random(5))

    reach = world.reach[world.place(world.rank)]
    assert reach.done == reach.issued


def test_a_dump_from_a_shared_template_is_the_dump_of_that_rank() -> None:
    world = one_world(128, FaultKind.SKIP, seed=3)
    alone, shared = Dumps(world, SHORT), Dumps(world, SHORT)
    shared.dump(0)  # of the same stage, in other groups

    assert shared.dump(9) == alone.dump(9)


def test_the_entries_of_a_batch_are_as_pytorch_records_them() -> None:
    world = one_world(128, FaultKind.STALL, seed=3)

    dump = pickle.loads(Dumps(world, SHORT).dump(40))

    batches = [e for e in dump["entries"] if e["pg_id"] == Kind.PP]
    closing = [e for e in batches if e["profiling_name"] == "nccl:coalesced"]
    assert len(dump["entries"]) == SHORT
    assert {e["state"] for e in batches if e["is_p2p"]} == {"scheduled"}
    assert not any(e["is_p2p"] or e["input_sizes"] for e in closing)
    assert dump["pg_status"]["2"]["last_enqueued_collective"] == closing[-1]["p2p_seq_id"]


def test_a_step_takes_as_many_entries_as_are_counted() -> None:
    step = one_step(MESH, 1)

    assert sum(map(entries, step)) == sum(len(u.messages) + 1 if isinstance(u, Batch) else 1 for u in step)
    assert all(isinstance(frame, Frame) for unit in step for frame in unit.stack)


@for_each("kind", FaultKind, one_in=5)
def test_a_planted_fault_is_told_exactly(kind: FaultKind) -> None:
    score = diagnosed(plant(MESH, kind, random.Random(21)))

    assert (score.exact, score.innocents) == (True, ())


@for_each("kind", [FaultKind.NO_SEND, FaultKind.NO_RECV, FaultKind.MESSAGE_SIZE], one_in=3)
def test_without_the_dump_of_the_rank_at_fault_its_peers_are_not_accused(kind: FaultKind) -> None:
    world = plant(MESH, kind, random.Random(22))

    assert diagnosed(world, leave_out=frozenset({world.rank})).innocents == ()


@pytest.mark.parametrize("faults", [1, pytest.param(2, marks=pytest.mark.sweep)])
def test_damaged_dumps_accuse_nobody_else(faults: int) -> None:
    for trial in try_faults(ranks=64, faults=faults, seed=7, damage=Damage(missing=0.1, cut=0.1)):
        assert trial.score.innocents == ()


def test_an_answer_that_accuses_another_rank_as_well_is_not_exact() -> None:
    assert not Score(cause=True, who=False, where=True, innocents=(3,)).exact


def test_the_plot_has_every_line_and_no_empty_one() -> None:
    picture = draw([Line("forkpoint", ((64, 0.5), (1024, 4.0))), Line("nothing", ())])

    assert picture.count('fill="none"') == 1
    assert "forkpoint" in picture
    assert "nothing" not in picture


@for_each("seed", [8, 10, 20])
def test_a_sender_whose_dump_lost_the_message_in_which_it_is_blocked_is_not_called_stalled(seed: int) -> None:
    """Its partner did not receive; its counters, which do not count messages, say that all is done."""
    world = plant(Mesh.of(64), FaultKind.NO_RECV, random.Random(seed))
    sender = next(slot.channel[0] for slot in world.slots if slot.channel)
    dumps, reading = Dumps(world, SHORT), Reading()
    for rank in dumps.ranks():
        data = dumps.dump(rank)
        reading.add_dump(f"nccl_trace_rank_{rank}", data[: len(data) * 4 // 5] if rank == sender else data)

    assert Score.of(diagnose(reading.capture()), world).innocents == ()
