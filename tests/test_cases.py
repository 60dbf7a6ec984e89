"""Every recorded case: the truth, written by hand, and the golden verdict, regenerated with `make accept`."""

import json

from accept import render_expected
from cases import CASES, Case, load_cases, verdict_of
from forkpoint.model.verdict import Cause
from looping import for_each

ALL = load_cases()
BY_NUMBER = for_each("case", ALL, ids=lambda case: case.number)

DIFFERENCES = {
    ("0017", "symptom", "error"): (
        "The program: sockets that closed when the recording ended the ranks, 13 s after the dumps, count as an error."
    ),
    ("0057", "action", "investigate"): (
        "The program: two ranks left cleanly for want of jobs, which is code to fix; a lost rank is all that it sees."
    ),
    ("0121", "symptom", None): (
        "The program: ranks that wait for a stopped one hang; it asks for an op older than its timeout, and dumps came sooner."
    ),
}
"""Case, field, and what the verdict says there -> who is wrong, and why it differs from the truth."""


@BY_NUMBER
def test_the_verdict_is_the_truth(case: Case) -> None:
    verdict = verdict_of(case.number)

    assert verdict.internal == ()
    if case.short_of:
        assert set(verdict.suspects) <= case.guilty
        return
    assert verdict.cause in case.causes
    assert verdict.suspects in case.suspects
    if case.seqs:
        assert verdict.divergence is not None
        assert verdict.divergence.seq in case.seqs


@BY_NUMBER
def test_no_innocent_rank_is_accused(case: Case) -> None:
    assert set(verdict_of(case.number).suspects) <= case.guilty


@BY_NUMBER
def test_the_verdict_is_the_one_that_was_accepted(case: Case) -> None:
    golden = json.loads((CASES / case.number / "expected.json").read_text())

    assert json.loads(render_expected(verdict_of(case.number))) == golden


def test_symptom_action_and_group_are_the_truth_but_for_known_differences() -> None:
    found = {difference for case in ALL for difference in differences(case)}

    assert found == set(DIFFERENCES)


def differences(case: Case) -> list[tuple[str, str, str | None]]:
    """An inconclusive verdict may leave the symptom and the group open, and have the reader investigate."""
    verdict = verdict_of(case.number)
    group = verdict.divergence and verdict.divergence.group
    open_ = verdict.cause is Cause.INCONCLUSIVE
    wrong: list[tuple[str, str, str | None]] = []
    if verdict.symptom not in case.symptoms and not (open_ and verdict.symptom is None):
        wrong.append((case.number, "symptom", verdict.symptom))
    if case.actions and verdict.action not in (*case.actions, *(["investigate"] if open_ else [])):
        wrong.append((case.number, "action", verdict.action))
    if case.group and case.group not in ((group.name, group.desc) if group else (case.group if open_ else None,)):
        wrong.append((case.number, "group", group.name if group else None))
    return wrong


@for_each("cause", [c for c in Cause if c is not Cause.INCONCLUSIVE])
def test_every_cause_has_a_case_that_it_must_find(cause: Cause) -> None:
    found = [c.number for c in ALL if c.causes[0] == cause and verdict_of(c.number).cause is cause]

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
