"""Replay: a repair explains only if the job stops without it where it stopped, and goes on with it."""

from forkpoint.diverge import find_divergences, find_partings
from forkpoint.diverge.align import align
from forkpoint.diverge.waits import find_waits
from forkpoint.replay import Job, Repair, RepairKind, Replay, replay
from small_jobs import SmallJob


def _job(job: SmallJob, ranks: list[int] | None = None) -> Job:
    timeline = align(job.capture(ranks))
    return Job.of(timeline, find_waits(timeline), find_divergences(timeline, find_partings(timeline)))


def _try(job: Job, kind: RepairKind, *ranks: int) -> Replay:
    return replay(job, Repair(kind, frozenset(ranks)))


def _one_stays_away() -> SmallJob:
    job = SmallJob(4)
    job.op()
    job.op(ranks=[0, 1, 3], done=False)
    return job


def test_the_rank_that_does_not_come_explains_a_wait() -> None:
    shown = _try(_job(_one_stays_away()), RepairKind.GO_ON, 2)

    assert shown.explains
    assert shown.cost == (0, 0)
    assert [[str(slot) for slot in done] for done in shown.rounds] == [["default_pg seq 2"]]


def test_a_rank_that_waits_itself_does_not_explain_it() -> None:
    assert not _try(_job(_one_stays_away()), RepairKind.GO_ON, 1).explains


def test_a_call_in_which_somebody_is_missed_is_not_mended_by_the_network() -> None:
    shown = _try(_job(_one_stays_away()), RepairKind.FINISH)

    assert not shown.stops
    assert not shown.goes_on


def test_a_call_in_which_all_are_is_mended_by_nothing_but_itself() -> None:
    job = SmallJob(3)
    job.op(done=False)
    stuck = _job(job)

    assert _try(stuck, RepairKind.FINISH).explains
    assert not _try(stuck, RepairKind.GO_ON, 1).explains


def _ring() -> SmallJob:
    job = SmallJob(2, groups={"1": ("a", (0, 1)), "2": ("b", (0, 1))})
    job.op(ranks=[0], group="1", done=False)
    job.op(ranks=[1], group="2", done=False)
    return job


def test_either_side_of_a_ring_explains_it_and_the_network_does_not() -> None:
    ring = _job(_ring())

    assert _try(ring, RepairKind.ORDER, 0).explains
    assert _try(ring, RepairKind.ORDER, 1).explains
    assert not _try(ring, RepairKind.FINISH).explains


def test_a_repair_that_leaves_another_wait_does_not_explain() -> None:
    job = SmallJob(4, groups={"1": ("a", (0, 1)), "2": ("b", (2, 3))})
    job.op(ranks=[0], group="1", done=False)
    job.op(ranks=[2], group="2", done=False)
    two_away = _job(job)

    assert not _try(two_away, RepairKind.GO_ON, 1).explains
    assert _try(two_away, RepairKind.GO_ON, 1, 3).explains


def test_calls_that_do_not_fit_are_mended_by_what_fits_and_by_nothing_else() -> None:
    job = SmallJob(4)
    job.op(ranks=[0, 1, 3], size=4, done=False)
    job.op(ranks=[2], size=8, done=False)
    misfit = _job(job)

    assert _try(misfit, RepairKind.FIT, 2).explains
    assert not _try(misfit, RepairKind.GO_ON, 2).explains
    assert not _try(misfit, RepairKind.FINISH).explains


def test_a_chain_of_waits_finishes_call_by_call() -> None:
    job = SmallJob(3, groups={"1": ("a", (0, 1)), "2": ("b", (1, 2))})
    job.op(ranks=[0], group="1", done=False)
    job.op(ranks=[1], group="2", done=False)
    shown = _try(_job(job), RepairKind.GO_ON, 2)

    assert shown.explains
    assert [[str(slot) for slot in done] for done in shown.rounds] == [["b seq 1"], ["a seq 1"]]


def test_of_ranks_without_a_dump_the_one_that_all_calls_miss_needs_the_fewest_assumptions() -> None:
    groups = {"1": ("row", (0, 1)), "2": ("row", (2, 3)), "3": ("col", (0, 2)), "4": ("col", (1, 3))}
    job = SmallJob(4, groups=groups)
    job.op(ranks=[2], group="2", done=False)
    job.op(ranks=[1], group="4", done=False)
    only_two_dumps = _job(job, [1, 2])

    assert _try(only_two_dumps, RepairKind.GO_ON, 3).cost == (0, 0)
    assert _try(only_two_dumps, RepairKind.GO_ON, 0).cost > (0, 0)


def test_one_decision_in_two_groups_is_mended_in_both_or_not_at_all() -> None:
    job = SmallJob(8, groups={"1": ("dp", (0, 1, 2, 3)), "2": ("dp", (4, 5, 6, 7))})
    for group, odd in (("1", 1), ("2", 5)):
        for rank in job.groups[group][1]:
            job.op(ranks=[rank], group=group, size=8 if rank == odd else 4, done=False)
    parted = _job(job)
    first, second = sorted({slot.group for slot in parted.slots}, key=lambda group: group.ranks)
    alone = Repair(RepairKind.FIT, frozenset({1, 5}), group=first, seq=1)

    assert not replay(parted, alone).explains
    assert replay(parted, Repair(RepairKind.FIT, alone.ranks, first, seq=1, beside=frozenset({(second, 1)}))).explains
