import forkpoint
from cases import CASES, Case, load_cases
from forkpoint.model.picture import RankState
from looping import for_each
from pictures.drawn import drawn, drawn_case
from small_jobs import SmallJob

S = RankState


@for_each("case", load_cases(), ids=lambda case: case.number)
def test_each_rank_has_the_state_of_its_cohort(case: Case) -> None:
    found = drawn_case(case.number)
    picture, divergence = found.picture, found.verdict.divergence

    assert picture.ranks.tolist() == list(found.incident.timeline.world)
    assert [r for r, s in zip(picture.ranks.tolist(), picture.suspect, strict=True) if s] == list(
        found.verdict.suspects
    )
    for rank, state, cohort in zip(picture.ranks.tolist(), picture.state, picture.cohort, strict=True):
        if cohort >= 0 and divergence:
            assert rank in divergence.cohorts[cohort].ranks
            assert S(state).name.lower() == divergence.cohorts[cohort].role or state == S.LOST


def test_ranks_outside_the_group_of_the_divergence_wait_or_agree() -> None:
    job = SmallJob(4, groups={"1": ("a", (0, 1)), "2": ("b", (2, 3))})
    job.op()
    job.op([0], group="1", done=False)
    job.op(group="2")

    assert drawn(job.capture()).picture.state.tolist() == [S.WAITING, S.BEHIND, S.AGREED, S.AGREED]


def test_a_healthy_job_agrees() -> None:
    job = SmallJob(3)
    job.op()

    assert drawn(job.capture()).picture.state.tolist() == [S.AGREED] * 3


def test_a_rank_without_a_dump_is_silent() -> None:
    job = SmallJob(3)
    job.op()
    job.op(done=False)

    assert drawn(job.capture(ranks=[0, 1])).picture.state.tolist() == [S.WAITING, S.WAITING, S.SILENT]


def test_a_rank_whose_own_log_tells_its_end_is_lost() -> None:
    found = drawn_case("0033")

    assert found.picture.state.tolist() == [S.WAITING, S.LOST, S.WAITING, S.WAITING]


def test_logs_alone_tell_who_waits_and_who_is_behind() -> None:
    logs = sorted((CASES / "0001" / "capture").glob("log_*"))

    assert drawn(forkpoint.read([str(p) for p in logs])).picture.state.tolist() == [S.BEHIND, *[S.WAITING] * 3]
