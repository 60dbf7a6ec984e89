"""What tools tell of recorded calls and stacks."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.asking import ask, says
from agent.claim_cases import recorded
from cases import CASES
from forkpoint.agent.case import Case, Refused, open_case
from forkpoint.model.timeline import Gap
from forkpoint.pipeline import examine
from small_jobs import SmallJob


def written(job: SmallJob, **kept: Any) -> Case:
    """A job written down op by op, as a case without source."""
    capture = job.capture(**kept)
    found = examine(capture)
    return replace(recorded("0001"), incident=found.incident, verdict=found.verdict, analysis=None, source=())


# ------------------------------------------------------------------------------------------------------------- progress


def test_progress_tells_how_far_ranks_came_and_folds_those_that_agree() -> None:
    assert says(recorded("0001"), "progress", group="default_pg") == [
        "rank 0: last issued seq 16 all_reduce [2] Float, entering; last done seq 15; waits since seq 16",
        "ranks 1-3: last issued seq 16 all_reduce [71178] Float, scheduled; last done seq 15; waits since seq 16",
    ]


def test_progress_says_who_is_behind() -> None:
    case = recorded("0003")
    told = says(case, "progress", group="default_pg")

    assert case.verdict.suspects == (0,)
    assert [line for line in told if line.startswith("furthest")] == ["furthest is seq 24; behind it: rank 0"]


def test_progress_calls_nobody_behind_whose_dump_is_missing_or_ends_early() -> None:
    """Rank 2 took part in what its peers finished, so its dump was taken before theirs; rank 3 left none."""
    job = SmallJob(4)
    for _ in range(5):
        job.op()
    job.entries[2] = job.entries[2][:3]

    told = says(written(job, ranks=[0, 1, 2]), "progress", group="default_pg")

    assert "rank 3: no dump" in told
    assert any(line.startswith("rank 2: ") and line.endswith("so it may have gone on") for line in told)
    assert not any(line.startswith("furthest") for line in told)


def test_progress_counts_messages_of_both_ends() -> None:
    told = {fact.where: fact.says for fact in ask(recorded("0005"), "progress")}

    assert told["default_pg messages 2->3"] == (
        "rank 2 sent up to message 59, scheduled; rank 3 received up to message 60, scheduled"
    )


def test_progress_comes_from_logs_where_there_are_no_dumps(tmp_path: Path) -> None:
    for log in (CASES / "0001" / "capture").glob("log_rank_*.txt"):
        shutil.copy(log, tmp_path)
    case = open_case([str(tmp_path)])

    told = {fact.where.rpartition("/")[2]: fact.says for fact in ask(case, "progress")}

    assert told["log_rank_1.txt line 13"].startswith("rank 1 by its log: timed out in ALLREDUCE seq 16 in default_pg")
    assert told["log_rank_0.txt line 60"].endswith("last enqueued 15, last completed 15")


# ----------------------------------------------------------------------------------------------- groups and their slots


def test_a_group_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(Refused, match="there are default_pg"):
        ask(recorded("0001"), "slots", group="default", seq=16)


def test_groups_of_one_description_are_told_apart() -> None:
    case = recorded("0115")
    with pytest.raises(Refused, match=r"mesh_tp \(name 3, ranks 0-1\), mesh_tp \(name 4, ranks 2-3\)"):
        ask(case, "slots", group="mesh_tp", seq=30)

    by_name = ask(case, "slots", group="4", seq=30, around=0)
    by_shown = ask(case, "slots", group="mesh_tp (name 4, ranks 2-3)", seq=30, around=0)

    assert by_name == by_shown
    assert [fact.says for fact in by_name] == ["ranks 2-3: all_reduce [] Float, scheduled"]


def test_slots_show_where_calls_differ_and_where_they_do_not() -> None:
    told = [(f.where, f.says) for f in ask(recorded("0001"), "slots", group="default_pg", seq=16, around=1)]

    assert told == [
        ("default_pg seq 15", "ranks 0-3: all_reduce [71178] Float, completed"),
        ("default_pg seq 16", "ranks 1-3: all_reduce [71178] Float, scheduled"),
        ("default_pg seq 16", "rank 0: all_reduce [2] Float, entering"),
    ]


def test_slots_tell_each_kind_of_gap_from_the_others() -> None:
    """Rank 1 has not come to the last call, rank 2's ring buffer no longer has the first, rank 3 left no dump."""
    job = SmallJob(4)
    for _ in range(5):
        job.op()
    job.op([0, 2, 3], done=False)
    case = written(job, ranks=[0, 1, 2], buffer={2: 2})
    (group,) = case.incident.timeline.groups
    assert [group.gap(1, 6), group.gap(2, 4), group.gap(3, 6)] == [Gap.NOT_REACHED, Gap.EVICTED, Gap.NO_DUMP]

    last = {f.says.partition(": ")[0]: f.says for f in ask(case, "slots", group="default_pg", seq=6, around=0)}
    early = {f.says.partition(": ")[0]: f.says for f in ask(case, "slots", group="default_pg", seq=4, around=0)}

    assert last["rank 1"] == "rank 1: not reached"
    assert "no dump" in last["rank 3"]
    assert "ring buffer" in early["rank 2"]
    assert early["ranks 0-1"] == "ranks 0-1: all_reduce [4] Float, completed"


def test_the_slot_after_the_last_one_is_one_to_which_nobody_has_come() -> None:
    assert says(recorded("0001"), "slots", group="default_pg", seq=17, around=0) == ["ranks 0-3: not reached"]


def test_an_all_to_all_shows_each_rank_s_own_volume() -> None:
    """Its sizes may differ by rank, so that of another rank must not stand for them."""
    told = [f.says for f in ask(recorded("0127"), "slots", group="default_pg", seq=48, around=0)]

    assert "rank 1: all_to_all that sends 1024 and receives 496 elements, completed" in told
    assert "rank 2: all_to_all that sends 1024 and receives 720 elements, completed" in told


def test_a_seq_that_was_not_recorded_is_refused_with_those_that_were() -> None:
    for name in ("slots", "cohorts"):
        for seq in (0, 18):
            with pytest.raises(Refused, match="recorded are seq 1 to 16"):
                ask(recorded("0001"), name, group="default_pg", seq=seq)


def test_cohorts_without_arguments_are_those_of_the_fork_point() -> None:
    told = says(recorded("0001"), "cohorts")

    assert told[1:] == [
        "ranks 1-3 (waiting): all_reduce [71178] Float, scheduled",
        "rank 0 (waiting): all_reduce [2] Float, entering, called from metrics.py:15 compute",
    ]


def test_cohorts_of_an_inverted_order_tell_of_the_ring() -> None:
    assert "ranks 0, 1, 3, 2 wait for each other in a ring" in says(recorded("0115"), "cohorts")[0]


def test_cohorts_of_an_all_to_all_do_not_give_one_rank_s_sizes_for_another() -> None:
    told = says(recorded("0127"), "cohorts")

    assert not any("[64, 16]" in line for line in told)


def test_cohorts_at_any_slot() -> None:
    told = says(recorded("0001"), "cohorts", group="default_pg", seq=15)

    assert told == ["ranks 0-3 (ahead): all_reduce [71178] Float, completed"]


def test_half_a_slot_is_refused() -> None:
    with pytest.raises(Refused, match="both group and seq"):
        ask(recorded("0001"), "cohorts", group="default_pg")


def test_cohorts_of_a_healthy_job_are_refused() -> None:
    with pytest.raises(Refused, match="no slot at which ranks part"):
        ask(recorded("0006"), "cohorts")


def test_messages_show_both_ends_each_with_its_own_call() -> None:
    told = [(f.where, f.says) for f in ask(recorded("0005"), "messages", source=2, destination=3, around=1)]

    assert told == [
        ("default_pg message 59 of 2->3", "rank 2 send [4, 128] Float, scheduled; rank 3 recv [4, 128] Float, issued"),
        (
            "default_pg message 60 of 2->3",
            "rank 2 has not come to it (its last is 59); rank 3 recv [4, 128] Float, scheduled",
        ),
    ]


def test_messages_on_another_way_are_refused_with_the_ways_there_are() -> None:
    with pytest.raises(Refused, match="0->1, 1->2, 2->3"):
        ask(recorded("0005"), "messages", source=3, destination=0)


def test_a_message_that_was_not_recorded_is_refused_with_the_last_that_was() -> None:
    with pytest.raises(Refused, match="the last is 60"):
        ask(recorded("0005"), "messages", source=2, destination=3, number=100)


def test_messages_whose_first_ones_are_lost_are_not_compared_by_number() -> None:
    job = SmallJob(2)
    for _ in range(6):
        job.send(0, 1)
        job.recv(1, 0)
    case = written(job, buffer={0: 3})

    assert any("need not be the same message" in line for line in says(case, "messages", source=0, destination=1))
    assert not any(
        "need not be the same message" in line for line in says(written(job), "messages", source=0, destination=1)
    )


# --------------------------------------------------------------------------------------------------------------- stacks


def test_stacks_name_the_users_frames_as_under_the_source_root_with_their_text() -> None:
    told = says(recorded("0001"), "stacks", rank=0)

    assert "rank 0 while the job hung, innermost first: metrics.py:15 compute: `dist.all_reduce(synced)`" in told
    assert any("at default_pg seq 16" in line and "train.py:37 main" in line for line in told)
    assert sum("distributed_c10d.py" in line for line in told) == 2


def test_stacks_come_from_the_log_of_a_rank_that_left_no_dump() -> None:
    told = says(recorded("0079"), "stacks", rank=0)

    assert any("by its log (exception): RuntimeError: DDP expects same model" in line for line in told)
    assert any("train.py:27 main: `model = DDP(model)`" in line for line in told)


def test_stacks_of_a_rank_that_has_none_are_refused() -> None:
    job = SmallJob(3)
    job.op()

    with pytest.raises(Refused, match="no stack of rank 2"):
        ask(written(job, ranks=[0, 1]), "stacks", rank=2)


def test_stack_diff_shows_what_is_shared_and_where_two_ranks_part() -> None:
    assert says(recorded("0001"), "stack_diff", rank=0, other=1) == [
        "both, outermost first: train.py:42 <module>: `main()`",
        "rank 0 alone from here on, outermost first: train.py:37 main: `log_progress(step, metric)`",
        (
            "rank 0 alone from here on, outermost first: train.py:16 log_progress: "
            '`log.info("step %d running loss %.4f", step, metric.compute())`'
        ),
        "rank 0 alone from here on, outermost first: metrics.py:15 compute: `dist.all_reduce(synced)`",
        "rank 0 alone from here on, outermost first: c10d_logger.py:83 wrapper and 1 more of libraries",
        "rank 1 alone from here on, outermost first: train.py:35 main: `metric.update(loss.item(), 8)`",
    ]


def test_stack_diff_of_ranks_that_stand_together_says_so() -> None:
    assert says(recorded("0115"), "stack_diff", rank=0, other=3)[-1] == "they do not part: both stand at the same line"
