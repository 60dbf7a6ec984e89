"""Who arrives last: found where it is one rank, and nobody's where it is everybody's turn."""

import forkpoint
from cases import verdict_of
from forkpoint.diverge.align import align
from forkpoint.judge.facts.stragglers import Arrivals, find_arrivals
from forkpoint.model.capture import Capture
from forkpoint.model.incident import Incident
from forkpoint.model.trace import RECENT
from forkpoint.model.verdict import Cause
from forkpoint.report.page_data import encode
from late_jobs import HOUR, MS, job_with, late_for_good, placed
from pictures.drawn import drawn, unpack
from small_jobs import SmallJob


def arrivals(capture: Capture) -> tuple[Arrivals, ...]:
    timeline = align(capture)
    return find_arrivals(Incident.of(capture, timeline, ()))


def test_a_rank_that_is_always_last_is_found_with_its_call_site() -> None:
    [found] = arrivals(placed(job_with(lambda rank, _: 20 * MS * (rank == 3)).capture()))

    assert found.straggler is not None
    assert (found.straggler.rank, found.straggler.times, found.straggler.usual_ns) == (3, RECENT - 1, 20 * MS)
    assert (found.site, found.host, found.met) == ("train.py:10 step", None, RECENT - 1)


def test_a_group_in_which_everybody_is_last_in_turn_has_no_straggler() -> None:
    [found] = arrivals(placed(job_with(lambda rank, slot: 20 * MS * (slot % 4 == rank)).capture()))

    assert found.straggler is None
    assert {late.rank: late.times for late in found.last} == {0: 7, 1: 8, 2: 8, 3: 8}


def test_microseconds_make_no_straggler() -> None:
    [found] = arrivals(placed(job_with(lambda rank, _: 20_000 * (rank == 3)).capture()))

    assert found.last[0].rank == 3
    assert found.straggler is None


def test_lateness_that_goes_on_through_a_burst_of_ops_counts_once() -> None:
    bursts = job_with(lambda rank, slot: 20 * MS * (rank == 3) + slot // 10 * 500 * MS, spacing=50_000)

    [found] = arrivals(placed(bursts.capture()))

    assert found.met == 3
    assert found.straggler is None


def test_hosts_whose_clocks_do_not_agree_are_looked_at_one_by_one() -> None:
    ahead = job_with(lambda rank, _: HOUR * (rank >= 4) + 20 * MS * (rank == 2), world=8)

    found = {one.host: one for one in arrivals(placed(ahead.capture(), hosts=2))}

    assert set(found) == {"node0", "node1"}
    assert found["node0"].straggler is not None
    assert (found["node0"].straggler.rank, found["node0"].ranks) == (2, (0, 1, 2, 3))
    assert found["node1"].straggler is None


def test_hosts_whose_clocks_agree_to_within_less_than_the_lateness_are_compared() -> None:
    known = job_with(lambda rank, slot: 400 * MS * (rank == 6) * (slot < 39), world=8, spacing=1000 * MS)

    [found] = arrivals(placed(known.capture(), hosts=2))

    assert (found.host, found.ranks) == (None, tuple(range(8)))
    assert found.straggler is not None
    assert found.straggler.rank == 6


def test_without_a_members_dump_nobody_is_called_last() -> None:
    late = job_with(lambda rank, _: 20 * MS * (rank == 3))

    assert arrivals(placed(late.capture(ranks=[0, 1, 3]))) == ()


def test_places_of_other_sites_are_rows_of_their_own() -> None:
    job = SmallJob(4)
    for slot in range(60):
        job.op(line=10 if slot % 2 else 20)
    for rank, entries in job.entries.items():
        for slot, entry in enumerate(entries):
            entry["time_created_ns"] += slot * 100 * MS + 20 * MS * (rank == (1 if slot % 2 else slot // 2 % 4))

    found = {one.site: one.straggler for one in arrivals(placed(job.capture()))}

    assert found["train.py:20 step"] is None
    assert found["train.py:10 step"] is not None
    assert found["train.py:10 step"].rank == 1


def test_a_straggler_that_ran_into_the_timeout_is_cited_with_its_habit() -> None:
    verdict = forkpoint.diagnose(late_for_good())

    assert (verdict.cause, verdict.suspects) == (Cause.STRAGGLER, (2,))
    said = [one.says for one in verdict.findings[0].evidence if "came last" in one.says]
    assert said == [
        "rank 2 came last 31 of the last 31 times that default_pg met at train.py:10 step, 20 ms after the others"
    ]


def test_a_straggler_that_was_late_once_is_cited_without_a_habit() -> None:
    verdict = verdict_of("0036")

    assert verdict.cause is Cause.STRAGGLER
    assert not any("came last" in one.says for one in verdict.findings[0].evidence)


def test_the_page_gets_the_rows_that_tell_something() -> None:
    header = unpack(encode(drawn(late_for_good()).picture)).header

    [row] = header["arrivals"]
    assert (row["odd"], row["last"][0][:2], row["site"]) == (True, [2, RECENT - 1], "train.py:10 step")
    few = placed(job_with(lambda rank, _: 20 * MS * (rank == 3), slots=6).capture())
    assert unpack(encode(drawn(few).picture)).header["arrivals"] == []
