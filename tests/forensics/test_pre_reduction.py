"""Who was out of line first. Each reading has evidence it must find and a near miss that accuses nobody."""

import random
from pathlib import Path

import pytest

import forkpoint
from forensics.written import NAN, SPIKE, WORLD, Changes, data_of, write_forensics
from forkpoint.model.verdict import Action, Cause, Symptom, Verdict
from looping import for_each


def diagnose(folder: Path, changes: Changes, **options) -> Verdict:
    write_forensics(folder, changes, **options)
    return forkpoint.diagnose(forkpoint.read([str(folder)]))


def answer(verdict: Verdict) -> tuple[Cause, tuple[int, ...], Action]:
    return verdict.cause, verdict.suspects, verdict.action


UNDECIDED = (Cause.INCONCLUSIVE, (), Action.INVESTIGATE)
ACCUSED = (Cause.SILENT_CORRUPTION, (2,), Action.INVESTIGATE)


@for_each("change", [NAN, SPIKE, {"loss": "inf"}])
def test_one_rank_alone_with_a_batch_that_did_nothing_elsewhere_is_named(tmp_path: Path, change) -> None:
    verdict = diagnose(tmp_path, {(2, 40): {**change, "data": data_of(1, 7)}})

    assert answer(verdict) == ACCUSED
    assert verdict.symptom is Symptom.NO_HANG
    assert "rank 2 was abnormal at step 40" in verdict.summary
    assert "it is not the data" in verdict.summary
    assert [(e.rank, e.where) for e in verdict.evidence] == [(2, "line 42"), (0, "line 42")]


def test_samples_that_others_had_in_other_batches_are_innocent_too(tmp_path: Path) -> None:
    mixed = [*data_of(1, 7)[:4], *data_of(0, 3)[4:]]

    assert answer(diagnose(tmp_path, {(2, 40): {**NAN, "data": mixed}})) == ACCUSED


@pytest.mark.parametrize("change", [NAN, SPIKE])
def test_one_rank_alone_with_a_batch_of_its_own_may_have_a_bad_batch(tmp_path: Path, change) -> None:
    verdict = diagnose(tmp_path, {(2, 40): change})

    assert answer(verdict) == UNDECIDED
    assert "either its GPU or its batch is the cause, and nothing says which" in verdict.summary
    assert "samples 1296, 1297" in verdict.next[0]


def test_a_batch_that_was_also_odd_elsewhere_is_not_innocent(tmp_path: Path) -> None:
    again = {**SPIKE, "data": data_of(2, 40)}

    assert answer(diagnose(tmp_path, {(2, 40): SPIKE, (1, 55): again})) == UNDECIDED


def test_a_batch_of_which_samples_were_left_out_is_not_innocent(tmp_path: Path) -> None:
    change = {**NAN, "data": data_of(1, 7), "data_left_out": 12}

    assert answer(diagnose(tmp_path, {(2, 40): change})) == UNDECIDED


def test_a_spike_that_is_not_far_beyond_all_that_was_there_names_nobody(tmp_path: Path) -> None:
    change = {"norm": [1.0, 60.0, 1.0], "data": data_of(1, 7)}

    assert answer(diagnose(tmp_path, {(2, 40): change})) == UNDECIDED


def test_all_ranks_alike_are_the_data_or_the_optimisation(tmp_path: Path) -> None:
    verdict = diagnose(tmp_path, {(rank, 40): {**SPIKE, "data": data_of(rank, 3)} for rank in range(WORLD)})

    assert answer(verdict) == UNDECIDED
    assert "the data or the optimisation is the cause and not a rank" in verdict.summary


def test_two_of_four_ranks_are_not_named(tmp_path: Path) -> None:
    changes = {(rank, 40): {**NAN, "data": data_of(rank, 3)} for rank in (1, 2)}

    assert answer(diagnose(tmp_path, changes)) == UNDECIDED


def test_only_the_first_odd_step_counts(tmp_path: Path) -> None:
    """What one rank brought into the sum is in every rank's weights one step later."""
    later = {(rank, step): SPIKE for rank in range(WORLD) for step in range(41, 60)}
    verdict = diagnose(tmp_path, {(2, 40): {**SPIKE, "data": data_of(1, 7)}, **later})

    assert answer(verdict) == ACCUSED


@for_each("lost", [0, 1, 3])
def test_without_the_record_of_a_rank_nobody_is_named(tmp_path: Path, lost: int) -> None:
    verdict = diagnose(
        tmp_path, {(2, 40): {**NAN, "data": data_of(1, 7)}}, ranks=[r for r in range(WORLD) if r != lost]
    )

    assert answer(verdict) == UNDECIDED
    assert f"rank {lost} left no record of that step, so it may have begun there" in verdict.summary


def test_without_the_guilty_rank_its_victims_are_not_called_alike(tmp_path: Path) -> None:
    later = {(rank, 41): SPIKE for rank in (0, 1, 3)}
    verdict = diagnose(tmp_path, later, ranks=[0, 1, 3])

    assert answer(verdict) == UNDECIDED
    assert "rank 2 left no record" in verdict.summary


def test_norms_that_only_grow_slowly_are_in_line(tmp_path: Path) -> None:
    grows = {(rank, step): {"norm": [1.02**step] * 3} for rank in range(WORLD) for step in range(60)}

    assert answer(diagnose(tmp_path, grows)) == (Cause.HEALTHY, (), Action.NONE)


def test_norms_with_long_tails_are_in_line_for_many_ranks_and_layers(tmp_path: Path) -> None:
    tails = random.Random(5)
    wild = {(r, s): {"norm": [tails.lognormvariate(0.0, 0.5) for _ in range(3)]} for r in range(64) for s in range(60)}

    assert answer(diagnose(tmp_path, wild, ranks=range(64), world=64)) == (Cause.HEALTHY, (), Action.NONE)


def test_the_first_steps_of_a_run_are_not_judged(tmp_path: Path) -> None:
    assert answer(diagnose(tmp_path, {(2, 5): {**SPIKE, "data": data_of(1, 7)}})) == (Cause.HEALTHY, (), Action.NONE)


@for_each(("usual", "spike", "found"), [(-5.0, -0.5, True), (-5.0, -4.0, False), (0.0, 0.5, True)])
def test_losses_may_be_negative_or_zero(tmp_path: Path, usual: float, spike: float, found: bool) -> None:
    losses = {(rank, step): {"loss": usual} for rank in range(WORLD) for step in range(60)}
    verdict = diagnose(tmp_path, {**losses, (2, 40): {"loss": spike}})

    assert ("its loss is" in verdict.summary) is found
    assert verdict.suspects == ()


def test_losses_may_be_left_out(tmp_path: Path) -> None:
    silent = {(rank, step): {"loss": None} for rank in range(WORLD) for step in range(60)}

    assert answer(diagnose(tmp_path, silent)) == (Cause.HEALTHY, (), Action.NONE)


def test_a_part_of_the_ranks_alone_is_not_called_healthy(tmp_path: Path) -> None:
    assert answer(diagnose(tmp_path, {}, ranks=[0, 1])) == UNDECIDED
