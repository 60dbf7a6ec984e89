"""A rank that made the last call of a step without those before it: hosts run ahead of their GPUs, so its peers wait while it does, too."""

from forkpoint.diverge import find_divergences, find_partings
from forkpoint.diverge.align import align
from forkpoint.model.incident import Divergence, PartingKind
from looping import for_each
from small_jobs import SmallJob

PAIRS = {"1": ("tp", (0, 1)), "2": ("tp", (2, 3)), "3": ("tp", (4, 5))}
LAYERS = 4


def step(job: SmallJob, *, short: int = LAYERS, done: bool = True) -> None:
    """Layers in each pair, then one call of all. Rank 1 comes to `short` layers."""
    for name, (_, members) in job.groups.items():
        for layer in range(LAYERS if name != "0" else 0):
            ranks = [r for r in members if r != 1 or layer < short]
            job.op(ranks, group=name, line=10 + layer, done=done or name != "1" or layer < short)
    job.op(line=50, done=done)


def fork_of(job: SmallJob, without: int | None = None) -> Divergence | None:
    timeline = align(job.capture([rank for rank in range(job.world) if rank != without]))
    return next(iter(find_divergences(timeline, find_partings(timeline))), None)


def job_of(pairs: dict[str, tuple[str, tuple[int, ...]]], short: int = 2) -> SmallJob:
    job = SmallJob(2 * len(pairs), groups=dict(pairs))
    for _ in range(2):
        step(job)
    step(job, short=short, done=False)
    return job


def test_a_rank_that_stands_where_all_stand_with_fewer_calls_behind_it_skipped_them() -> None:
    fork = fork_of(job_of(PAIRS))

    assert fork is not None
    assert (fork.how, fork.group.desc, fork.seq) == (PartingKind.ABSENCE, "tp", 2 * LAYERS + 3)
    assert fork.odd == (1,)
    assert fork.shift is not None
    assert (fork.shift.ranks, fork.shift.by) == ((1,), 2)


def test_of_a_pair_without_others_beside_it_either_may_be_wrong() -> None:
    fork = fork_of(job_of({"1": ("tp", (0, 1))}))

    assert fork is None or fork.odd == ()


@for_each("last", [{"line": 60}, {"size": 8}])
def test_a_rank_that_stands_at_another_call_has_not_passed_this_one(last: dict[str, int]) -> None:
    """What it waits in is its own: it may have come there from another place, and make the others' call later."""
    job = SmallJob(6, groups=dict(PAIRS))
    step(job)
    job.op((0,), group="1", line=10, done=False)
    job.op((0, 2, 3, 4, 5), line=50, done=False)
    job.op((1,), done=False, **last)

    fork = fork_of(job)

    assert fork is not None
    assert fork.how is PartingKind.METADATA or fork.shift is None


def test_a_rank_that_has_only_come_less_far_has_passed_nothing() -> None:
    job = SmallJob(6, groups=dict(PAIRS))
    step(job)
    for rank in (0, 2, 3, 4, 5):
        job.op((rank,), group="1" if rank == 0 else "2" if rank < 4 else "3", line=10, done=rank > 0)
    job.op((0, 2, 3, 4, 5), line=50, done=False)

    fork = fork_of(job)

    assert fork is not None
    assert fork.shift is None


@for_each("others", [(0, 1, 2, 3), (4, 5, 6, 7)])
def test_groups_of_the_same_ranks_are_no_votes_about_each_other(others: tuple[int, ...]) -> None:
    """Torch calls every group `undefined` that the program does not name: two groups of all ranks need not do the same."""
    job = SmallJob(max(others) + 1, groups={"1": ("undefined", (0, 1, 2, 3)), "2": ("undefined", others)})
    for _ in range(2):
        job.op(group="1", line=10)
        job.op(group="2", line=30)
        job.op(line=50)
    job.op((2, 3), group="1", line=10, done=False)
    job.op(line=50, done=False)

    fork = fork_of(job, without=1)

    assert fork is not None
    assert (fork.odd == (2, 3)) == (others[0] > 3)
