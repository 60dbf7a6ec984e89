"""What follows from a verdict, and when it is tried again: pure functions, told as tables."""

from dataclasses import replace
from pathlib import Path

import pytest

from forkpoint.live.children import DO_NOT_RETRY, RETRY, RETRY_ELSEWHERE, Decision, Diagnosed
from forkpoint.live.run.attempt import MAX_WAIT_S, Attempt, Retry, next_step
from forkpoint.live.run.job import JobEnd
from forkpoint.live.worker import decide
from forkpoint.model.verdict import Action, Cause, Coverage, Symptom, Verdict
from looping import for_each

CHILD = 17


def verdict(action: Action, *, cause: Cause = Cause.DIVERGENT_PATH, confidence: float = 0.85) -> Verdict:
    return Verdict(Symptom.ERROR, cause, confidence, action, (1, 2), "something", None, Coverage(4, 4, 4, 4))


@for_each(
    ("action", "code"),
    [
        (Action.FIX_CODE, DO_NOT_RETRY),
        (Action.FIX_CODE_OR_STORAGE, RETRY),
        (Action.FIX_CODE_OR_HARDWARE, RETRY),
        (Action.REPLACE_NODE, RETRY_ELSEWHERE),
        (Action.REPLACE_OR_RETRY, RETRY),
        (Action.RAISE_TIMEOUT, RETRY),
        (Action.INVESTIGATE, CHILD),
        (Action.NONE, CHILD),
    ],
)
def test_each_action_has_its_exit_code(action: Action, code: int) -> None:
    assert decide(verdict(action), CHILD, {1: "node-a", 2: "node-b"}).code == code


def test_nodes_to_leave_out_are_named_once_and_only_where_that_is_decided() -> None:
    nodes = {0: "node-x", 1: "node-a", 2: "node-a"}

    assert decide(verdict(Action.REPLACE_NODE), CHILD, nodes).nodes == ("node-a",)
    assert decide(verdict(Action.REPLACE_OR_RETRY), CHILD, nodes).nodes == ()


def test_a_node_that_is_not_known_for_every_suspect_is_not_left_out() -> None:
    decision = decide(verdict(Action.REPLACE_NODE), CHILD, {1: "node-a"})

    assert (decision.code, decision.nodes) == (RETRY, ())


@pytest.mark.parametrize("cause", [Cause.INCONCLUSIVE, Cause.HEALTHY])
def test_a_verdict_that_names_no_cause_decides_nothing(cause: Cause) -> None:
    assert decide(verdict(Action.FIX_CODE, cause=cause), CHILD, {}).code == CHILD


@pytest.mark.parametrize(("confidence", "code"), [(0.7, DO_NOT_RETRY), (0.5, CHILD)])
def test_doubt_does_not_stop_a_job(confidence: float, code: int) -> None:
    assert decide(verdict(Action.FIX_CODE, confidence=confidence), CHILD, {}).code == code


# ------------------------------------------------------------------------------------------------------------- retries


FOUND = Diagnosed("rank-lost", "replace-or-retry", (1,), 0.85, "Rank 1 is lost.", "lost", "{}", seq=40, step=100)


def attempt(found: Diagnosed | None = FOUND, *, code: int = RETRY, stopped_by: int | None = None) -> Attempt:
    return Attempt(0, Path("attempt_0"), JobEnd(1, stopped_by, 1.0), Decision(code, "why"), found)


def step_after(*attempts: Attempt, retries: int = 5) -> Retry | Decision:
    return next_step(attempts, retries, back_off_s=4, chance=1.0)


def test_waits_double_up_to_a_limit() -> None:
    different = [attempt(replace(FOUND, suspects=(n,))) for n in range(12)]
    waits = [step_after(*different[: n + 1], retries=50) for n in range(12)]

    assert waits[:3] == [Retry(4), Retry(8), Retry(16)]
    assert waits[-1] == Retry(MAX_WAIT_S)


def test_chance_shortens_a_wait_by_up_to_half() -> None:
    assert next_step([attempt()], 1, back_off_s=4, chance=0.0) == Retry(2)


@for_each(
    "again",
    [
        FOUND,
        replace(FOUND, step=99),
        replace(FOUND, seq=41),  # seqs begin anew in every attempt, so the step counts
        replace(FOUND, step=None, seq=40),
    ],
)
def test_the_same_cause_without_progress_stops_it(again: Diagnosed) -> None:
    step = step_after(attempt(), attempt(again))

    assert isinstance(step, Decision)
    assert step.code == DO_NOT_RETRY


@for_each(
    "again",
    [
        replace(FOUND, suspects=(2,)),
        replace(FOUND, cause="transport"),
        replace(FOUND, step=101, seq=3),
        replace(FOUND, step=None, seq=41),
    ],
)
def test_another_cause_or_progress_is_tried_again(again: Diagnosed) -> None:
    assert isinstance(step_after(attempt(), attempt(again)), Retry)


def test_failures_that_nobody_understood_are_not_the_same_cause() -> None:
    unknown = replace(FOUND, cause="inconclusive", suspects=())

    assert isinstance(step_after(attempt(unknown, code=1), attempt(unknown, code=1)), Retry)
    assert isinstance(step_after(attempt(None, code=1), attempt(None, code=1)), Retry)


@for_each(
    ("last", "code"),
    [
        (attempt(code=DO_NOT_RETRY), DO_NOT_RETRY),
        (attempt(code=RETRY_ELSEWHERE), RETRY_ELSEWHERE),  # only the scheduler can choose other nodes
        (attempt(code=143, stopped_by=15), 143),
    ],
)
def test_what_another_attempt_cannot_help_is_not_tried_again(last: Attempt, code: int) -> None:
    step = step_after(last)

    assert isinstance(step, Decision)
    assert step.code == code


def test_a_job_that_we_ended_because_it_hung_is_tried_again() -> None:
    assert isinstance(step_after(replace(attempt(stopped_by=15), hung=True)), Retry)


def test_when_no_retries_are_left_the_decision_of_the_last_attempt_stands() -> None:
    step = step_after(attempt(), attempt(replace(FOUND, suspects=(2,))), retries=1)

    assert isinstance(step, Decision)
    assert step.code == RETRY
