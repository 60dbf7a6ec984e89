"""What tools tell of recorded calls and stacks."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.asking import ask, says
from agent.claim_cases import all_recorded, recorded
from cases import CASES
from forkpoint.agent.case import Ledger
from forkpoint.agent.mcp.desk import LIMIT, Pages
from forkpoint.brief.case import Case, QuestionRefused, open_case
from forkpoint.errors import UsageError
from forkpoint.model.timeline import Gap
from forkpoint.model.verdict import Cause
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

    assert told["default_pg channels 2->3"] == "sent 59, received 60, one still open"


def test_progress_comes_from_logs_where_there_are_no_dumps(tmp_path: Path) -> None:
    for log in (CASES / "0001" / "capture").glob("log_rank_*.txt"):
        shutil.copy(log, tmp_path)
    case = open_case([str(tmp_path)])

    told = {fact.where.rpartition("/")[2]: fact.says for fact in ask(case, "progress")}

    assert told["log_rank_1.txt line 13"].startswith("ranks 1-3 by their logs: timed out in ALLREDUCE seq 16")
    assert told["log_rank_0.txt line 60"].endswith("last enqueued 15, last completed 15")


# ----------------------------------------------------------------------------------------------- groups and their slots


def test_a_group_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(QuestionRefused, match="there are default_pg"):
        ask(recorded("0001"), "table", group="default", seq=16)


def test_groups_of_one_description_are_told_apart() -> None:
    case = recorded("0115")
    with pytest.raises(QuestionRefused, match=r"mesh_tp \(name 3, ranks 0-1\), mesh_tp \(name 4, ranks 2-3\)"):
        ask(case, "table", group="mesh_tp", seq=30)

    by_name = ask(case, "table", group="4", seq=30, around=0)
    by_shown = ask(case, "table", group="mesh_tp (name 4, ranks 2-3)", seq=30, around=0)

    assert by_name == by_shown
    assert by_name[-1].says.startswith("ranks 2-3: all_reduce [] Float, scheduled")


def test_a_table_shows_the_last_row_that_agrees_and_the_first_that_does_not() -> None:
    told = [(f.where, f.says) for f in ask(recorded("0001"), "table", around=1)]

    assert told[1:] == [
        ("default_pg seq 15 (last alike)", "ranks 0-3: all_reduce [71178] Float, completed"),
        (
            "default_pg seq 16 (first that differs)",
            "ranks 1-3: all_reduce [71178] Float, scheduled | rank 0: all_reduce [2] Float, entering at metrics.py:15 compute",
        ),
    ]
    assert "the last row in which all agree is seq 15; the first that differs is seq 16" in told[0][1]


def cells(case: Case, seq: int) -> dict[str, str]:
    """By ranks, what the row of a seq says."""
    rows = [f for f in ask(case, "table", group="default_pg", seq=seq, around=0) if f" seq {seq}" in f.where]
    found = [cell.partition(": ")[::2] for row in rows for cell in row.says.split(" | ")]
    return dict(found)


def test_a_table_tells_each_kind_of_gap_from_the_others() -> None:
    """Rank 1 has not reached the last call, rank 2's ring buffer no longer has the first, rank 3 left no dump."""
    job = SmallJob(4)
    for _ in range(5):
        job.op()
    job.op([0, 2, 3], done=False)
    case = written(job, ranks=[0, 1, 2], buffer={2: 2})
    (group,) = case.incident.timeline.groups
    assert [group.gap(1, 6), group.gap(2, 4), group.gap(3, 6)] == [Gap.NOT_REACHED, Gap.EVICTED, Gap.NO_DUMP]

    last, early = cells(case, 6), cells(case, 4)

    assert last["rank 1"] == "not reached"
    assert "no dump" in last["rank 3"]
    assert "ring buffer" in early["rank 2"]
    assert early["ranks 0-1"] == "all_reduce [4] Float, completed at train.py:10 step"


def test_the_slot_after_the_last_one_is_one_to_which_nobody_has_come() -> None:
    assert cells(recorded("0001"), 17) == {"ranks 0-3": "not reached"}


def test_an_all_to_all_shows_each_rank_s_own_volume() -> None:
    """Its sizes may differ by rank, so that of another rank must not stand for them."""
    told = cells(recorded("0127"), 48)

    assert told["rank 1"].startswith("all_to_all that sends 1024 and receives 496 elements, completed")
    assert told["rank 2"].startswith("all_to_all that sends 1024 and receives 720 elements, completed")


def test_a_seq_that_was_not_recorded_is_refused_with_those_that_were() -> None:
    for seq in (0, 18):
        with pytest.raises(QuestionRefused, match="this group has recorded seq 1 to 16"):
            ask(recorded("0001"), "table", group="default_pg", seq=seq)


def test_a_table_of_an_inverted_order_tells_of_the_ring_and_so_do_waits() -> None:
    assert "a cycle of 4 ranks, each waits for the next: 0 -> 1 -> 3 -> 2 -> 0" in says(recorded("0115"), "waits")
    assert "ranks 0, 1, 3, 2 wait for each other in a ring" in says(recorded("0115"), "table")[0]


def test_waits_tell_who_has_not_come() -> None:
    told = says(recorded("0003"), "waits")

    assert "ranks 1-3 wait: rank 0 did not call it" in told
    assert "rank 0: no pending call, but others wait for it" in told


def test_a_table_of_a_healthy_job_shows_its_last_rows() -> None:
    healthy = next(
        case for _, case in all_recorded() if case.verdict.cause is Cause.HEALTHY and case.incident.timeline.groups
    )

    assert "none differs among dumps" in says(healthy, "table")[0]


def test_answers_about_many_ranks_are_by_cohort_and_fit_a_page() -> None:
    job = SmallJob(512)
    for _ in range(4):
        job.op()
    job.op([rank for rank in range(512) if rank != 17], done=False)
    case = written(job)

    for name in ("table", "waits", "progress"):
        page = Pages(Ledger()).first(ask(case, name))
        assert len(page) <= LIMIT
        assert "rank 17" in page
        assert "ranks 0-16,18-511" in page
    assert "more lines" not in page


def test_channels_pair_sends_with_receives_and_show_first_what_does_not() -> None:
    told = {f.where: f.says for f in ask(recorded("0077"), "channels")}

    assert told["default_pg channels 2->3"] == "sent 12, received 15, one still open"
    assert list(told).index("default_pg channels 2->3") < 3


def test_threads_of_all_ranks_are_told_by_place() -> None:
    told = says(recorded("0001"), "threads")

    assert told[0].startswith("main thread of ranks 1-3: ")
    assert "metrics.py:15 compute < train.py:16 log_progress" in told[1]


def test_why_lists_what_survives_what_replay_refused_and_what_would_decide() -> None:
    told = [f.where for f in ask(recorded("0061"), "why")]

    assert {"hypothesis 1, likely", "hypothesis 2, possible", "what would decide"} <= set(told)
    assert any(where.startswith("tried, and rejected") for where in (f.where for f in ask(recorded("0001"), "why")))


def test_a_file_that_was_set_aside_can_be_used_anyway(tmp_path: Path) -> None:
    shutil.copytree(CASES / "0001" / "capture", tmp_path / "run")
    other = next(case for number, case in all_recorded() if number != "0001" and 0 in case.incident.timeline.traces)
    old = Path(other.incident.timeline.traces[0].file)
    shutil.copy(old, tmp_path / "run" / "old_nccl_trace_rank_0")
    case = open_case([str(tmp_path / "run")])
    (aside,) = case.verdict.coverage.set_aside

    told = {f.where: f.says for f in ask(case, "files")}
    assert told[Path(aside.file).name].startswith("of rank 0, set aside: ")
    used = open_case([str(tmp_path / "run")], use=[Path(aside.file).name])
    assert aside.file not in {one.file for one in used.verdict.coverage.set_aside}
    with pytest.raises(UsageError, match="no file with these names"):
        open_case([str(tmp_path / "run")], use=["nowhere"])


def test_messages_show_both_ends_each_with_its_own_call() -> None:
    told = [(f.where, f.says) for f in ask(recorded("0005"), "channels", source=2, destination=3, around=1)]

    assert told == [
        ("default_pg message 59 of 2->3", "rank 2 send [4, 128] Float, scheduled; rank 3 recv [4, 128] Float, issued"),
        (
            "default_pg message 60 of 2->3",
            "rank 2 has not reached it (its last is 59); rank 3 recv [4, 128] Float, scheduled",
        ),
    ]


def test_messages_on_another_way_are_refused_with_the_ways_there_are() -> None:
    with pytest.raises(QuestionRefused, match="0->1, 1->2, 2->3"):
        ask(recorded("0005"), "channels", source=3, destination=0)


def test_a_message_that_was_not_recorded_is_refused_with_the_last_that_was() -> None:
    with pytest.raises(QuestionRefused, match="the last is 60"):
        ask(recorded("0005"), "channels", source=2, destination=3, number=100)


def test_messages_whose_first_ones_are_lost_are_not_compared_by_number() -> None:
    job = SmallJob(2)
    for _ in range(6):
        job.send(0, 1)
        job.recv(1, 0)
    case = written(job, buffer={0: 3})

    assert any("may be different messages" in line for line in says(case, "channels", source=0, destination=1))
    assert not any(
        "may be different messages" in line for line in says(written(job), "channels", source=0, destination=1)
    )


# --------------------------------------------------------------------------------------------------------------- stacks


def test_stacks_name_the_users_frames_as_under_the_source_root_with_their_text() -> None:
    told = says(recorded("0001"), "threads", rank=0)

    assert "rank 0 while the job hung, innermost first: metrics.py:15 compute: `dist.all_reduce(synced)`" in told
    assert any("at default_pg seq 16" in line and "train.py:37 main" in line for line in told)
    assert sum("distributed_c10d.py" in line for line in told) == 2


def test_stacks_come_from_the_log_of_a_rank_that_left_no_dump() -> None:
    told = says(recorded("0079"), "threads", rank=0)

    assert any("by its log (models-differ): RuntimeError: DDP expects same model" in line for line in told)
    assert any("train.py:27 main: `model = DDP(model)`" in line for line in told)


def test_stacks_of_a_rank_that_has_none_are_refused() -> None:
    job = SmallJob(3)
    job.op()

    with pytest.raises(QuestionRefused, match="no stack of rank 2"):
        ask(written(job, ranks=[0, 1]), "threads", rank=2)


def test_stack_diff_shows_what_is_shared_and_where_two_ranks_part() -> None:
    assert says(recorded("0001"), "stack_diff", rank=0, other=1) == [
        "both, outermost first: train.py:42 <module>: `main()`",
        "rank 0 alone from here on, outermost first: train.py:37 main: `log_progress(step, metric)`",
        (
            "rank 0 alone from here on, outermost first: train.py:16 log_progress: "
            '`log.info("step %d running loss %.4f", step, metric.compute())`'
        ),
        "rank 0 alone from here on, outermost first: metrics.py:15 compute: `dist.all_reduce(synced)`",
        "rank 0 alone from here on, outermost first: c10d_logger.py:83 wrapper and 1 more in libraries",
        "rank 1 alone from here on, outermost first: train.py:35 main: `metric.update(loss.item(), 8)`",
        "rank 1 alone from here on, outermost first: Tensor.item",
    ]


def test_stack_diff_of_ranks_that_stand_together_says_so() -> None:
    assert says(recorded("0115"), "stack_diff", rank=0, other=3)[-1] == "they do not differ: both are at the same line"
