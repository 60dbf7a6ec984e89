"""Where ranks stand, told from columns of all ranks, is where their own traces say that they do."""

from graphlib import CycleError, TopologicalSorter

from hypothesis import given
from hypothesis import strategies as st

from cases import Case, examine_case, load_cases
from forkpoint.diverge.align import align
from forkpoint.diverge.waits import Waiting, Waits, WaitsFor, find_cycle, find_waits
from forkpoint.model.timeline import Position, Timeline
from looping import for_each
from small_jobs import SmallJob

DUMPED = [case for case in load_cases() if any(case.capture.rglob("*rank_*"))]


def expected_stand(positions: tuple[Position, ...]) -> list[tuple[object, ...]]:
    """The first op that is not done; if it is a message, all of its batch."""
    first = positions[0]
    batch = [p for p in positions if p.channel and (p.group, p.op.batch) == (first.group, first.op.batch)]
    held = batch if first.channel else [first]
    return [(p.group, p.channel, p.op.seq, p.op.batch, p.op.record_id, p.op.created_ns) for p in held]


def elsewhere(timeline: Timeline, rank: int, name: str) -> bool:
    return any(p.channel is None and p.group.name == name for p in timeline.positions[rank][1:])


@for_each("case", DUMPED, ids=[case.number for case in DUMPED])
def test_every_rank_of_a_case_stands_where_its_trace_says(case: Case) -> None:
    timeline = examine_case(case.number).incident.timeline
    pending = {rank: held for rank, held in timeline.positions.items() if held}

    assert list(timeline.stands) == sorted(pending)
    for rank, positions in pending.items():
        stands = timeline.stands[rank]
        told = [(s.group, s.channel, s.seq, s.batch, s.record_id, s.created_ns) for s in stands]
        assert told == expected_stand(positions)
        for stand in stands:
            channel = None if stand.index is None else timeline.channels[stand.index]
            assert channel is None or (channel.group, (channel.source, channel.destination)) == (
                stand.group,
                stand.channel,
            )
    for group in timeline.groups:
        held = timeline.stands.held_elsewhere(group)
        assert held == {r for r in group.traces if r in pending and elsewhere(timeline, r, group.group.name)}


@for_each("case", DUMPED, ids=[case.number for case in DUMPED])
def test_tracks_of_one_kind_hold_the_same_ops(case: Case) -> None:
    timeline = examine_case(case.number).incident.timeline
    blocks: dict[int, tuple[int, ...]] = {}
    for group in timeline.groups:
        held = {track.blocks for rank in group.traces if (track := group.track(rank))}
        shown = {track.blocks for _, rank in group.kinds if (track := group.track(rank))}
        assert shown == held
        for kind, rank in group.kinds:
            track = group.track(rank)
            assert track is not None
            assert blocks.setdefault(kind, track.blocks) == track.blocks


def test_channels_of_one_kind_are_told_together_and_each_once() -> None:
    job = SmallJob(6, groups={name: ("pp", (first, first + 1)) for name, first in (("1", 0), ("2", 2), ("3", 4))})
    for name, source in (("1", 0), ("2", 2), ("3", 4)):
        for _ in range(3):
            job.send(source, source + 1, group=name)
            job.recv(source + 1, source, group=name)
    job.send(4, 5, group="3")
    timeline = align(job.capture(ranks=[0, 1, 2, 3, 4]))

    kinds = {(c.source, c.destination): list(alike) for c, alike in timeline.channels.by_kind()}

    assert [(c.source, c.destination) for c in timeline.channels] == [(0, 1), (2, 3), (4, 5)]
    assert kinds == {(0, 1): [0, 1], (4, 5): [2]}
    assert timeline.of_channel(timeline.channels[2].group, (4, 5)).received is None


def test_ranks_that_stand_in_one_slot_are_told_with_who_came_first() -> None:
    job = SmallJob(4)
    job.op()
    job.op(ranks=[2], done=False)
    job.op(ranks=[0, 1], done=False)
    waits = find_waits(align(job.capture()))

    (waiting,) = waits.waiting

    assert (waiting.ranks, waits.first(waiting.ranks), waiting.held.absent) == ([0, 1, 2], 2, (3,))
    assert waits.beside(1) == [0, 1, 2]
    assert 3 not in waits


@st.composite
def who_waits(draw: st.DrawFn) -> list[Waiting]:
    """Ranks 0 to 11: some stand together, and wait for ranks that may wait themselves, or not."""
    ranks = draw(st.lists(st.integers(0, 11), unique=True))
    slots: dict[int, list[int]] = {}
    for rank in sorted(ranks):
        slots.setdefault(draw(st.integers(0, 4)), []).append(rank)
    others = st.lists(st.integers(0, 11), unique=True, max_size=3)
    on = [tuple(r for r in draw(others) if r not in held) for held in slots.values()]
    return [Waiting(held, WaitsFor(missed)) for held, missed in zip(slots.values(), on, strict=True)]


def has_cycle(waiting: list[Waiting]) -> bool:
    graph = {
        rank: [o for o in one.held.on if any(o in w.ranks for w in waiting)] for one in waiting for rank in one.ranks
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return False


@given(who_waits())
def test_a_ring_is_found_where_there_is_one_and_each_in_it_waits_for_the_next(waiting: list[Waiting]) -> None:
    job = SmallJob(2)
    job.op()
    waits = Waits(align(job.capture()), waiting)

    ring = find_cycle(waits)

    assert bool(ring) == has_cycle(waiting)
    assert ring[:1] == ((min(ring),) if ring else ())
    for held_up, holding in zip(ring, (*ring[1:], *ring[:1]), strict=True):
        assert holding in waits.with_rank(held_up).held.on
