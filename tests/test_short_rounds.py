"""One replica goes short of some calls of a round: what its rings still hold begins with the call that does not fit."""

from collections.abc import Callable

from forkpoint.diverge import find_divergences, find_partings
from forkpoint.diverge.align import align
from forkpoint.judge.detectors.divergent_path import find
from forkpoint.judge.facts.calls import find_beside
from forkpoint.model.incident import Divergence, Incident
from forkpoint.model.verdict import Finding
from small_jobs import SmallJob

STAGES = {"1": ("dp", (0, 2, 4, 6)), "2": ("dp", (1, 3, 5, 7))}
"""Four replicas of two stages; of these two the second reduces fewer buckets, so that its numbers are others."""
BUCKETS = {"1": 4, "2": 3}
COUNTS = 4


def step(job: SmallJob, short: dict[str, int], odd: tuple[int, int] = (2, 3)) -> None:
    """Counts of tokens, one of each micro-batch, then buckets of gradients. The odd replica leaves out the last `short` counts."""
    for name, (_, members) in STAGES.items():
        for rank in members:
            left = short.get(name, 0) if rank in odd else 0
            done = not short
            for count in range(COUNTS - left):
                fits = done or count < COUNTS - max(short.values())
                job.op((rank,), size=1, group=name, line=16, done=fits)
            for _ in range(BUCKETS[name]):
                job.op((rank,), size=640, group=name, line=15, done=done)


def incident_of(last: Callable[[SmallJob], None], kept: int) -> Incident:
    """Two whole steps, then `last`. The odd ranks' rings hold `kept` of their calls."""
    job = SmallJob(8, groups=dict(STAGES))
    for _ in range(2):
        step(job, {})
    last(job)
    capture = job.capture(buffer={2: kept, 3: kept - 1})
    timeline = align(capture)
    return Incident.of(capture, timeline, find_divergences(timeline, find_partings(timeline)))


def finding_of(incident: Incident) -> Finding | None:
    return next(iter(find(incident)), None)


def fork_of(incident: Incident) -> Divergence:
    assert incident.divergence is not None
    return incident.divergence


def test_a_replica_that_is_off_by_as_many_calls_in_all_its_groups_is_named_whole() -> None:
    incident = incident_of(lambda job: step(job, {"1": 2, "2": 2}), kept=4)

    finding, fork = finding_of(incident), fork_of(incident)

    assert fork.shift is not None
    assert (fork.shift.ranks, fork.shift.by) == ((2,), 2)
    assert fork.group.desc == "dp"
    assert finding is not None
    assert finding.suspects == (2, 3)


def test_groups_in_which_ranks_are_off_by_other_numbers_parted_for_other_reasons() -> None:
    incident = incident_of(lambda job: step(job, {"1": 2, "2": 1}), kept=4)

    assert all(d.seq == fork_of(incident).seq for d in find_beside(fork_of(incident), incident))
    finding = finding_of(incident)
    assert finding is None or finding.suspects in {(2,), ()}


def swapped(job: SmallJob) -> None:
    """The odd ranks make the calls of a step the other way round, and then go on as the others."""
    for name, (_, members) in STAGES.items():
        for rank in members:
            calls = [(1, 16)] * COUNTS + [(640, 15)] * BUCKETS[name]
            if rank in (2, 3):
                calls = calls[COUNTS:] + calls[:COUNTS]
            for size, line in calls:
                job.op((rank,), size=size, group=name, line=line, done=False)


def test_a_rank_that_makes_what_it_left_out_afterwards_may_only_have_another_order() -> None:
    incident = incident_of(swapped, kept=BUCKETS["1"] + COUNTS)

    assert fork_of(incident).shift is None
