"""Timeline -> Divergence: the earliest parting, and who stands where."""

from cases import CASES
from forkpoint.diverge import find_divergences, find_partings
from forkpoint.diverge.align import align
from forkpoint.diverge.cohorts import channel_cohorts, cohorts_at
from forkpoint.diverge.slots import sequence
from forkpoint.evidence import read
from forkpoint.model.capture import Capture
from forkpoint.model.entries import BLOCK
from forkpoint.model.incident import Divergence, PartingKind, Role, Shift
from forkpoint.model.op import SIZES_FREE
from small_jobs import SmallJob


def _fork(capture: Capture) -> Divergence | None:
    timeline = align(capture)
    found = find_divergences(timeline, find_partings(timeline))
    return found[0] if found else None


def test_ranks_that_agree_do_not_diverge() -> None:
    job = SmallJob(4)
    for _ in range(300):
        job.op()

    assert _fork(job.capture(buffer={0: 300, 1: 10, 2: 140, 3: 290})) is None


def test_the_same_collective_from_other_lines_is_no_divergence() -> None:
    job = SmallJob(4)
    for _ in range(5):
        job.op(ranks=[0], name="broadcast", line=10)
        job.op(ranks=[1, 2, 3], name="broadcast", line=14)

    assert _fork(job.capture()) is None


def test_shapes_of_equal_size_do_not_part_ranks() -> None:
    job = SmallJob(2)
    job.op(ranks=[0], size=(2, 3))
    job.op(ranks=[1], size=6)

    assert _fork(job.capture()) is None


def test_the_minority_is_odd_even_when_it_is_rank_zero() -> None:
    job = SmallJob(4)
    job.op()
    job.op(ranks=[0], size=2, line=50, done=False)
    job.op(ranks=[1, 2, 3], size=9, done=False)

    fork = _fork(job.capture())

    assert fork is not None
    assert (fork.how, fork.seq, fork.odd) == (PartingKind.METADATA, 2, (0,))


def test_a_mismatch_that_completed_is_the_fork_not_the_later_hang() -> None:
    job = SmallJob(4)
    job.op()
    job.op(ranks=[3], size=2)
    job.op(ranks=[0, 1, 2], size=9)
    job.op()
    job.op(ranks=[0, 1, 2], done=False)

    fork = _fork(job.capture())

    assert fork is not None
    assert (fork.seq, fork.hang_seq, fork.odd) == (2, 4, (3,))


def test_an_even_split_names_nobody() -> None:
    job = SmallJob(4)
    job.op()
    job.op(ranks=[0, 1], size=2, done=False)
    job.op(ranks=[2, 3], size=9, done=False)

    fork = _fork(job.capture())

    assert fork is not None
    assert fork.odd == ()


def test_a_majority_that_missing_dumps_could_turn_over_names_nobody() -> None:
    job = SmallJob(5)
    job.op()
    job.op(ranks=[0, 1], size=2, done=False)
    job.op(ranks=[2, 3, 4], size=9, done=False)

    fork = _fork(job.capture(ranks=[0, 2, 3]))

    assert fork is not None
    assert fork.odd == ()


def test_a_skip_among_equal_ops_is_found_where_its_stacks_shift() -> None:
    job = SmallJob(4)
    for step in range(6):
        skipped = step == 2
        job.op(ranks=[0, 1, 3], line=10)
        if not skipped:
            job.op(ranks=[2], line=10)
        job.op(line=20)
        job.op(line=30)
    job.op(ranks=[0, 1, 3], line=10, done=False)
    job.op(ranks=[2], name="barrier", line=90, done=False)

    fork = _fork(job.capture())

    assert fork is not None
    assert fork.odd == (2,)
    assert fork.shift is not None
    assert (fork.shift.by, fork.seq) == (1, 7)
    assert fork.first_visible_seq == 18


def test_one_call_more_than_the_others_is_found_where_its_stacks_shift() -> None:
    job = SmallJob(4)
    for step in range(6):
        job.op(line=10)
        if step == 3:
            job.op(ranks=[1], line=77)
        job.op(line=20)
    job.op(ranks=[0, 2, 3], name="barrier", line=90, done=False)
    job.op(ranks=[1], line=10, done=False)

    fork = _fork(job.capture())

    assert fork is not None
    assert fork.shift is not None
    assert (fork.odd, fork.shift.by, fork.seq) == ((1,), -1, 8)


def test_a_victim_that_waits_in_one_group_for_a_rank_held_in_another_is_not_odd() -> None:
    job = SmallJob(4, groups={"1": ("tp", (0, 1)), "2": ("tp", (2, 3)), "3": ("dp", (0, 2)), "4": ("dp", (1, 3))})
    for _ in range(3):
        for group in ("1", "2", "3", "4"):
            job.op(group=group)
    job.op(group="1")
    job.op(ranks=[2], group="2", done=False)  # waits for 3, which never comes
    job.op(ranks=[0], group="3", done=False)  # waits for 2
    job.op(ranks=[1], group="4", done=False)  # waits for 3 too, but later

    fork = _fork(job.capture())

    assert fork is not None
    assert (fork.how, fork.odd, fork.group.name) == (PartingKind.ABSENCE, (3,), "2")


def test_two_groups_used_in_opposite_order_are_a_ring_of_waits() -> None:
    job = SmallJob(3, groups={"1": ("a", (0, 1, 2)), "2": ("b", (0, 1, 2))})
    job.op(ranks=[0, 2], group="1", done=False)
    job.op(ranks=[1], group="2", done=False)

    fork = _fork(job.capture())

    assert fork is not None
    assert fork.how is PartingKind.CYCLE
    assert set(fork.cycle) <= {0, 1, 2}
    assert 1 in fork.cycle
    assert fork.odd == (1,)


def test_unbalanced_all_to_all_is_a_divergence_and_an_uneven_one_is_not() -> None:
    for sent, received, parts in (((3, 5), (5, 3), False), ((3, 5), (5, 4), True)):
        job = SmallJob(2)
        for rank in (0, 1):
            sizes = {"input_sizes": [[sent[rank]]], "output_sizes": [[received[rank]]]}
            job.op(ranks=[rank], name="all_to_all", **sizes)

        fork = _fork(job.capture())

        assert (fork is not None and fork.how is PartingKind.VOLUME) is parts


def test_a_stage_that_sends_one_message_less_between_two_collectives_is_odd() -> None:
    job = SmallJob(4)
    for step in range(3):
        for micro in range(3):
            for sender in range(3):
                short = step == 2 and micro == 2
                if not (short and sender == 1):
                    job.send(sender, sender + 1, done=not short)
                if not (short and sender + 1 == 1):
                    job.recv(sender + 1, sender, done=not short)
        job.op(done=step < 2)

    fork = _fork(job.capture())

    assert fork is not None
    assert (fork.kind, fork.odd, fork.seq) == ("p2p", (1,), 9)


def test_a_healthy_pipeline_with_uneven_counts_per_rank_does_not_diverge() -> None:
    job = SmallJob(3)
    for _ in range(40):
        job.send(0, 1)
        job.recv(1, 0)
        job.send(1, 2)
        job.recv(2, 1)
        job.op()

    assert _fork(job.capture(buffer={0: 30, 1: 30, 2: 30})) is None


def test_every_member_is_in_exactly_one_cohort() -> None:
    job = SmallJob(5)
    job.op()
    job.op(ranks=[0, 1], done=False)
    job.op(ranks=[2], size=9, done=False)

    fork = _fork(job.capture(ranks=[0, 1, 2, 3]))

    assert fork is not None
    assert sorted(r for c in fork.cohorts for r in c.ranks) == [0, 1, 2, 3, 4]
    assert {c.role for c in fork.cohorts} == {Role.WAITING, Role.BEHIND, Role.SILENT}


def test_a_number_that_jumps_out_of_all_bounds_costs_nothing() -> None:
    """As a broken or hostile dump may have it."""
    job = SmallJob(2)
    job.op()
    job.op()
    job.op(ranks=[0], collective_seq_id=2**62)
    job.op(ranks=[1], name="all_gather")

    timeline = align(job.capture())
    track = timeline.groups[0].track(0)

    assert track is not None
    assert track.last_seq == 2**62
    assert len(sequence(track, timeline.tables)) < 2 * BLOCK


def test_a_cohort_away_from_the_frontier_claims_no_sizes_that_may_be_another_ranks() -> None:
    case = CASES / "0127" / "capture"
    timeline = align(read([str(case)]))
    group = next(g for g in timeline.groups if any(t.volumes is not None for t in g.traces.values()))
    volumes = next(t.volumes for t in group.traces.values() if t.volumes is not None)
    cohorts = [c for seq in volumes.seqs.tolist() for c in cohorts_at(group, seq, timeline)]
    assert {c.op for c in cohorts if c.op} <= SIZES_FREE
    kept = {
        op.seq
        for t in group.traces.values()
        if (k := t.collectives)
        for op in (k.first_active, k.last_done, k.last)
        if op
    }
    early = [c for s in volumes.seqs.tolist() if s not in kept for c in cohorts_at(group, s, timeline)]
    assert early
    assert not any(c.sizes for c in early)


def test_each_end_of_a_channel_is_told_by_its_own_call() -> None:
    timeline = align(read([str(CASES / "0005" / "capture")]))
    channel = next(c for c in timeline.channels if (c.source, c.destination) == (2, 3))
    assert channel.sent is not None
    assert channel.received is not None
    numbers = range(max(channel.sent.first_seq, channel.received.first_seq), channel.received.last_seq + 1)
    told = {tuple(c.op for c in channel_cohorts(channel, number, timeline)) for number in numbers}
    assert told == {("send", "recv"), (None, "recv")}  # the last was never sent


def _shift_of(usual: str, odd: str) -> Shift | None:
    """A letter is a call, each from a line of its own; rank 2 made the odd ones."""
    job = SmallJob(4)
    for ranks, calls in (([0, 1, 3], usual), ([2], odd)):
        for call in calls:
            job.op(ranks=ranks, line=ord(call), size=ord(call))
    fork = _fork(job.capture())
    return fork.shift if fork else None


def test_a_shift_that_fits_only_the_end_of_a_dump_is_chance() -> None:
    by_the_clock = _shift_of("ababcabababcabababababcabababcab", "abababcababababcababababcababababcab")
    skipped = _shift_of("abdabdcabdabdabdcabdabdabdcabd", "abdabdabdabdabdcabdabdabdcabd")

    assert by_the_clock is None
    assert skipped is not None
    assert skipped.by == 1
