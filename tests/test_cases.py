"""Every recorded case: the truth, written by hand, and the golden verdict, regenerated with `make accept`."""

import json

import pytest

import forkpoint
from accept import render_expected
from cases import CASES, Case, load_cases
from forkpoint.model.verdict import Cause, Verdict

ALL = load_cases()
BY_NUMBER = pytest.mark.parametrize("case", ALL, ids=[c.number for c in ALL])


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    return {c.number: forkpoint.diagnose(forkpoint.read([str(c.capture)])) for c in ALL}


@BY_NUMBER
def test_the_verdict_is_the_truth(case: Case, verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[case.number]

    if case.short_of:
        assert set(verdict.suspects) <= case.guilty
        return
    assert verdict.cause in case.causes
    assert verdict.suspects in case.suspects
    if case.seqs:
        assert verdict.divergence is not None
        assert verdict.divergence.seq in case.seqs


@BY_NUMBER
def test_no_innocent_rank_is_accused(case: Case, verdicts: dict[str, Verdict]) -> None:
    assert set(verdicts[case.number].suspects) <= case.guilty


@BY_NUMBER
def test_the_verdict_is_the_one_that_was_accepted(case: Case, verdicts: dict[str, Verdict]) -> None:
    golden = json.loads((CASES / case.number / "expected.json").read_text())

    assert json.loads(render_expected(verdicts[case.number])) == golden


@pytest.mark.parametrize("cause", [c for c in Cause if c is not Cause.INCONCLUSIVE])
def test_every_cause_has_a_case_that_it_must_find(cause: Cause, verdicts: dict[str, Verdict]) -> None:
    found = [c.number for c in ALL if c.causes[0] == cause and verdicts[c.number].cause is cause]

    assert found, f"no case of {cause} is found"


def test_cases_cover_layouts_worlds_backends_and_both_timing_modes() -> None:
    assert len(ALL) >= 30
    assert {"DP", "TPxDP", "PP", "MoE", "FSDP"} <= {c.layout for c in ALL}
    assert {c.backend for c in ALL} == {"nccl", "gloo"}
    assert {c.timing for c in ALL} == {True, False}
    assert max(c.world for c in ALL) >= 16


def test_few_cases_fall_short() -> None:
    """Each says why. Truths are not bent, and falling short is never accusing."""
    assert len([c for c in ALL if c.short_of]) <= len(ALL) // 10
