"""Replicas that were not equal: who is named, what is done about it, and what must not be taken for it."""

from pathlib import Path
from typing import Any

import pytest

import forkpoint
from forensics.written import (
    NAN,
    RANK_2_ODD,
    SPIKE,
    WORLD,
    data_of,
    equal,
    mismatch,
    recheck,
    start,
    write_forensics,
    write_lines,
    write_replicas,
)
from forkpoint.model.verdict import Action, Cause, Symptom, Verdict
from looping import for_each
from written_jobs import WrittenJob, xid

FLIPPED = mismatch(0, 30, RANK_2_ODD)
SKIPPED = mismatch(
    0,
    30,
    {0: "1e", 1: "1d", 2: "1e", 3: "1e"},
    what="update",
    tensor=None,
    kind="software",
    why="an update was skipped",
)
ON_RANK_2 = {**NAN, "data": data_of(1, 7)}
"""With a batch that did nothing elsewhere."""


def diagnose(folder: Path) -> Verdict:
    return forkpoint.diagnose(forkpoint.read([str(folder)]))


def answer(verdict: Verdict) -> tuple[Cause, tuple[int, ...], Action]:
    return verdict.cause, verdict.suspects, verdict.action


# ------------------------------------------------------------------------------------------------------------ the vote


def test_one_of_four_replicas_is_outvoted_and_to_be_looked_at(tmp_path: Path) -> None:
    write_replicas(tmp_path, FLIPPED)
    verdict = diagnose(tmp_path)

    assert answer(verdict) == (Cause.SILENT_CORRUPTION, (2,), Action.INVESTIGATE)
    assert verdict.symptom is Symptom.NO_HANG
    assert verdict.confidence == 0.85
    assert "Rank 2 held other values than the other replicas at step 30 (parameter head.weight)" in verdict.summary
    assert [(e.rank, e.where) for e in verdict.evidence] == [(2, "line 4"), (0, "line 4"), (0, "line 3")]
    assert "step 20 or earlier" in verdict.fixes[0].title
    assert "recheck" in verdict.probes[0].title


@pytest.mark.parametrize("kept", [0, 2])
def test_the_file_of_one_rank_is_enough(tmp_path: Path, kept: int) -> None:
    write_replicas(tmp_path, FLIPPED, ranks=[kept])

    assert answer(diagnose(tmp_path)) == (Cause.SILENT_CORRUPTION, (2,), Action.INVESTIGATE)


@for_each(
    "sums",
    [{0: "a", 1: "b"}, {0: "a", 1: "a", 2: "b", 3: "b"}, {0: "a", 1: "b", 2: "c", 3: "a"}, {0: "a", 1: "b", 2: "c"}],
)
def test_without_a_majority_nobody_is_named(tmp_path: Path, sums: dict[int, str]) -> None:
    write_replicas(tmp_path, mismatch(0, 30, sums, odd=[1]))
    verdict = diagnose(tmp_path)

    assert answer(verdict) == (Cause.SILENT_CORRUPTION, (), Action.INVESTIGATE)
    assert "no majority says which is right" in verdict.summary


def test_what_a_file_says_of_the_vote_is_not_believed(tmp_path: Path) -> None:
    write_replicas(tmp_path, mismatch(0, 30, RANK_2_ODD, odd=[0]))

    assert diagnose(tmp_path).suspects == (2,)


def test_files_that_disagree_on_a_check_name_nobody(tmp_path: Path) -> None:
    write_replicas(tmp_path, FLIPPED, ranks=[0, 1, 2])
    other = mismatch(3, 30, {0: "03b7", 1: "9f0c", 2: "9f0c", 3: "9f0c"})
    write_lines(tmp_path / "replicas_rank_3.jsonl", [start(3), other])
    verdict = diagnose(tmp_path)

    assert answer(verdict) == (Cause.SILENT_CORRUPTION, (), Action.INVESTIGATE)
    assert "the files do not agree on it" in verdict.summary


def test_a_member_that_saw_all_equal_in_that_check_makes_it_doubtful(tmp_path: Path) -> None:
    write_replicas(tmp_path, FLIPPED, ranks=[0, 1, 2])
    write_lines(tmp_path / "replicas_rank_3.jsonl", [start(3), equal(3, 30)])

    assert diagnose(tmp_path).suspects == ()


def test_other_replicas_may_well_be_equal_in_that_check(tmp_path: Path) -> None:
    """Ranks 4-7 hold another shard."""
    write_replicas(tmp_path, FLIPPED, world=8)
    write_replicas(tmp_path, equal(0, 30), ranks=[4, 5, 6, 7], world=8)

    assert diagnose(tmp_path).suspects == (2,)


def test_only_the_first_check_that_fails_counts(tmp_path: Path) -> None:
    """Later others are wrong too: what they reduced with rank 2 made them so."""
    write_replicas(tmp_path, FLIPPED, mismatch(0, 40, {0: "a", 1: "b", 2: "b", 3: "b"}))

    assert diagnose(tmp_path).suspects == (2,)


# ------------------------------------------------------------------------------------------------------------- software


def test_a_skipped_update_is_the_code(tmp_path: Path) -> None:
    write_replicas(tmp_path, SKIPPED)
    verdict = diagnose(tmp_path)

    assert answer(verdict) == (Cause.SILENT_CORRUPTION, (1,), Action.FIX_CODE)
    assert "an update was skipped" in verdict.summary


def test_a_step_behind_explains_the_tensors_that_differ_with_it(tmp_path: Path) -> None:
    write_replicas(tmp_path, mismatch(0, 30, {0: "a", 1: "b", 2: "a", 3: "a"}), SKIPPED)

    assert answer(diagnose(tmp_path)) == (Cause.SILENT_CORRUPTION, (1,), Action.FIX_CODE)


def test_software_never_takes_a_node_out(tmp_path: Path) -> None:
    write_replicas(tmp_path, SKIPPED, recheck(0, 1, "persistent"))

    assert diagnose(tmp_path).action is Action.FIX_CODE


# --------------------------------------------------------------------------------------------------------- two signals


@for_each(
    ("result", "action"),
    [("persistent", Action.REPLACE_NODE), ("transient", Action.INVESTIGATE), ("same-everywhere", Action.INVESTIGATE)],
)
def test_a_recheck_that_fails_again_on_the_device_is_a_second_signal(
    tmp_path: Path, result: str, action: Action
) -> None:
    write_replicas(tmp_path, FLIPPED, recheck(0, 2, result))
    verdict = diagnose(tmp_path)

    assert answer(verdict) == (Cause.SILENT_CORRUPTION, (2,), action)
    assert (verdict.confidence == 0.95) is (action is Action.REPLACE_NODE)


@pytest.mark.parametrize("deviates", [1, None])
def test_a_recheck_that_speaks_against_another_device_is_none(tmp_path: Path, deviates: int | None) -> None:
    write_replicas(tmp_path, FLIPPED, recheck(0, deviates, "persistent"))

    assert diagnose(tmp_path).action is Action.INVESTIGATE


@for_each(
    ("said", "action"),
    [
        (xid(2, 48, "DBE", pid=4002), Action.REPLACE_NODE),
        (xid(2, 48, "DBE"), Action.INVESTIGATE),
        (xid(1, 48, "DBE", pid=4001), Action.INVESTIGATE),
        (xid(2, 13, pid=4002), Action.INVESTIGATE),
    ],
    ids=["on its GPU", "at a time that cannot be compared", "on another GPU", "one of programs"],
)
def test_an_xid_of_its_gpu_is_a_second_signal(tmp_path: Path, said: str, action: Action) -> None:
    job = WrittenJob(tmp_path)
    for rank in range(WORLD):
        job.write_log(rank, times_out=False)
    job.write_dumps((0, 1, 2, 3), waiting=())
    job.write_kernel(said)
    write_replicas(tmp_path, FLIPPED)

    assert answer(diagnose(tmp_path)) == (Cause.SILENT_CORRUPTION, (2,), action)


def test_gradients_out_of_line_while_replicas_were_equal_are_a_second_signal(tmp_path: Path) -> None:
    write_replicas(tmp_path, equal(0, 40), mismatch(0, 50, RANK_2_ODD))
    write_forensics(tmp_path, {(2, 33): ON_RANK_2})
    verdict = diagnose(tmp_path)

    assert answer(verdict) == (Cause.SILENT_CORRUPTION, (2,), Action.REPLACE_NODE)
    assert "replicas were still equal at step 40" in verdict.summary
    assert any(e.file.endswith("forensics_rank_2.jsonl") for e in verdict.evidence)


@for_each(
    ("at", "change"),
    [((2, 45), ON_RANK_2), ((1, 33), ON_RANK_2), ((2, 33), NAN), ((2, 33), {"norm": [1.0, 60.0, 1.0]})],
    ids=["after the difference may have begun", "another rank", "a batch of its own", "not far enough"],
)
def test_gradients_that_may_have_another_reason_are_none(tmp_path: Path, at: tuple[int, int], change: Any) -> None:
    write_replicas(tmp_path, equal(0, 40), mismatch(0, 50, RANK_2_ODD))
    write_forensics(tmp_path, {at: change})

    assert answer(diagnose(tmp_path)) == (Cause.SILENT_CORRUPTION, (2,), Action.INVESTIGATE)


def test_a_spike_on_all_ranks_beside_a_flipped_weight_accuses_nobody_else(tmp_path: Path) -> None:
    write_replicas(tmp_path, FLIPPED)
    write_forensics(tmp_path, {(rank, 25): SPIKE for rank in range(WORLD)})

    assert answer(diagnose(tmp_path)) == (Cause.SILENT_CORRUPTION, (2,), Action.INVESTIGATE)


# ------------------------------------------------------------------------------------------------------ beside a hang


def test_a_hang_keeps_its_own_cause(tmp_path: Path) -> None:
    job = WrittenJob(tmp_path)
    job.write_dumps((0, 1, 2))
    for rank in range(3):
        job.write_log(rank)
    job.write_log(3, times_out=False)
    job.write_kernel(xid(3, 79), second=job.hang_s + 1)
    write_replicas(tmp_path, FLIPPED)
    verdict = diagnose(tmp_path)

    assert verdict.cause is Cause.RANK_LOST
    assert [f.cause for f in verdict.findings][-1] is Cause.SILENT_CORRUPTION


# -------------------------------------------------------------------------------------------------------- near misses


def test_checks_in_which_all_was_equal_are_healthy(tmp_path: Path) -> None:
    write_replicas(tmp_path, equal(0, 30))
    write_forensics(tmp_path)
    verdict = diagnose(tmp_path)

    assert answer(verdict) == (Cause.HEALTHY, (), Action.NONE)
    assert "up to step 30" in verdict.summary


def test_files_that_only_begin_say_nothing(tmp_path: Path) -> None:
    for rank in range(WORLD):
        write_lines(tmp_path / f"replicas_rank_{rank}.jsonl", [start(rank)])

    assert answer(diagnose(tmp_path)) == (Cause.INCONCLUSIVE, (), Action.INVESTIGATE)


@for_each(
    "hostile",
    [
        mismatch(0, 30, {}),
        mismatch(0, 30, {0: "a"}),
        mismatch(0, 30, RANK_2_ODD, ranks=[0, 0, 2, 3]),
        mismatch(0, 30, RANK_2_ODD, ranks="0123"),
        mismatch(0, 30, RANK_2_ODD, checksums=["a", "b"]),
        mismatch(0, 30, RANK_2_ODD) | {"step": "30"},
        mismatch(0, -1, RANK_2_ODD),
        mismatch(0, 30, RANK_2_ODD, record="verdict"),
    ],
)
def test_lines_that_do_not_fit_accuse_nobody(tmp_path: Path, hostile: dict[str, Any]) -> None:
    write_replicas(tmp_path, hostile)

    assert answer(diagnose(tmp_path)) == (Cause.HEALTHY, (), Action.NONE)
