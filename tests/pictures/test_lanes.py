from dataclasses import replace

from msgspec import structs

from forkpoint.model.picture import CellState, Lane
from forkpoint.report.pictures.lanes import draw_lanes
from pictures.drawn import Drawn, drawn, drawn_case
from small_jobs import SmallJob


def odd(lane: Lane) -> list[int]:
    return [cell.seq for cell in lane.cells if cell.odd]


def of_case(number: str) -> Drawn:
    return drawn_case(number)


def test_the_odd_call_is_outlined_where_ranks_call_different_things() -> None:
    most, left = of_case("0001").picture.lanes

    assert (most.ranks, most.suspect, odd(most)) == ((1, 2, 3), False, [])
    assert (left.ranks, left.suspect, odd(left)) == ((0,), True, [16])
    cell = left.cells[-1]
    assert (cell.op, cell.letters, cell.sizes, cell.state) == ("all_reduce", "AR", "[2]", CellState.ISSUED)
    assert cell.note == "entering, metrics.py:15 compute"


def test_a_rank_that_has_not_come_is_outlined_where_others_wait_and_nowhere_later() -> None:
    job = SmallJob(3)
    for _ in range(9):
        job.op()
    for _ in range(3):
        job.op([0, 1], done=False)

    most, behind = drawn(job.capture()).picture.lanes

    assert [cell.seq for cell in most.cells] == [cell.seq for cell in behind.cells] == list(range(4, 13))
    assert odd(most) == []
    assert odd(behind) == [10]
    assert [cell.state for cell in behind.cells[-3:]] == [CellState.NOT_REACHED] * 3


def test_a_suspect_that_left_no_dump_is_outlined_where_others_wait() -> None:
    found = of_case("0033")
    most, lost = found.picture.lanes

    assert (lost.ranks, lost.suspect) == (found.verdict.suspects, True)
    assert odd(lost) == [found.verdict.divergence.hang_seq] if found.verdict.divergence else []
    assert odd(most) == []


def test_ranks_of_which_nothing_is_known_do_not_stand_out() -> None:
    job = SmallJob(4)
    job.op()
    job.op([0, 1], done=False)
    found = drawn(job.capture(ranks=[0, 1, 2]))
    assert found.verdict.suspects == ()

    silent = next(lane for lane in found.picture.lanes if lane.ranks == (3,))

    assert odd(silent) == []


def test_without_majority_or_suspect_all_that_differ_stand_out() -> None:
    job = SmallJob(2)
    job.op()
    job.op([0], size=8, line=None, done=False)
    job.op([1], size=9, line=None, done=False)
    found = drawn(job.capture())
    assert found.verdict.suspects == ()

    assert [odd(lane) for lane in found.picture.lanes] == [[2], [2]]


def test_there_are_no_lanes_without_a_divergence() -> None:
    assert of_case("0006").picture.lanes == ()


def test_many_cohorts_become_the_largest_six() -> None:
    job = SmallJob(20)
    for rank in range(20):
        job.op([rank], size=100 + min(rank, 10), done=False)

    lanes = drawn(job.capture()).picture.lanes

    assert len(lanes) == 6
    assert lanes[0].ranks == tuple(range(10, 20))


def test_a_divergence_told_by_logs_alone_is_one_slot() -> None:
    found = of_case("0040")
    divergence = found.verdict.divergence
    assert divergence
    verdict = replace(
        found.verdict, divergence=replace(divergence, group=structs.replace(divergence.group, name="not recorded"))
    )

    lanes = draw_lanes(found.incident.timeline, verdict)

    assert [[cell.seq for cell in lane.cells] for lane in lanes] == [[divergence.seq]] * len(lanes)
    assert [lane.cells[0].op for lane in lanes] == [cohort.op for cohort in divergence.cohorts]
