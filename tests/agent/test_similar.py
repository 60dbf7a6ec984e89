"""Recorded cases that are like the one at hand."""

from dataclasses import replace
from importlib.resources import files

import pytest

from agent.claim_cases import recorded as opened
from cases import CASES, load_cases
from forkpoint.agent.similar import ForkShape, find_similar, recorded, render_index, shape_of
from forkpoint.agent.tools.verdict import SIMILAR, SimilarArguments, similar_tool
from forkpoint.brief.case import QuestionRefused
from forkpoint.model.verdict import Cause
from looping import for_each


def test_the_index_is_what_the_cases_say_today() -> None:
    """`make docs` writes it."""
    shipped = files("forkpoint.agent").joinpath("similar.toml").read_text("utf-8")

    assert shipped == render_index(CASES)


def test_every_case_is_in_the_index_with_its_true_cause() -> None:
    assert {case.number: case.cause for case in recorded()} == {c.number: c.causes[0] for c in load_cases()}


@for_each("number", ["0001", "0005", "0016", "0024", "0101", "0115"])
def test_a_case_is_most_like_itself_and_no_more_than_those_beside_it(number: str) -> None:
    found = find_similar(opened(number).verdict)

    best = [s.recorded.number for s in found if s.weight == found[0].weight]
    assert number in best


@for_each("number", ["0001", "0005", "0024", "0126"])
def test_a_case_that_is_left_out_is_not_told_nor_is_another_run_of_its_fault(number: str) -> None:
    found = find_similar(opened(number).verdict, without=[number])
    fault = next(case.fault for case in recorded() if case.number == number)

    assert found
    assert number not in {s.recorded.number for s in found}
    assert not fault or fault not in {s.recorded.fault for s in found}


def test_runs_of_one_fault_are_found_where_nothing_is_left_out() -> None:
    """The near miss of the test above: 0117 is the same fault on the other backend."""
    assert "0117" in {s.recorded.number for s in find_similar(opened("0126").verdict)}


def test_cases_of_the_same_cause_and_shape_come_before_all_others() -> None:
    found = find_similar(opened("0024").verdict, without=["0024"])

    assert {s.recorded.number for s in found[:2]} == {"0097", "0127"}
    assert found[0].recorded.ops == {"all_to_all"}
    assert found[2].recorded.ops != {"all_to_all"}
    assert [s.weight for s in found] == sorted((s.weight for s in found), reverse=True)


def test_messages_are_like_messages() -> None:
    found = find_similar(opened("0005").verdict, without=["0005"])

    assert found[0].recorded.messages


def test_an_assumed_cause_takes_the_place_of_the_verdict_s() -> None:
    found = find_similar(opened("0001").verdict, cause=Cause.GPU_STALL)

    assert found[0].recorded.cause is Cause.GPU_STALL


def test_a_verdict_without_a_cause_has_none_in_common() -> None:
    verdict = replace(opened("0001").verdict, cause=Cause.INCONCLUSIVE, divergence=None)

    assert find_similar(verdict) == ()


@for_each(
    ("calls", "shape"),
    [
        ([], ForkShape.NONE),
        (["all_reduce"], ForkShape.SAME),
        (["all_reduce", "all_reduce"], ForkShape.ARGUMENTS),
        (["all_reduce", "barrier"], ForkShape.CALLS),
        (["all_reduce", None], ForkShape.ABSENT),
    ],
)
def test_how_ranks_part_is_told_from_their_calls(calls: list[str | None], shape: ForkShape) -> None:
    assert shape_of(calls) is shape


def test_the_tool_tells_stories_and_leaves_out_what_it_is_told_to() -> None:
    case = opened("0001")
    asked = SimilarArguments(cause=None)

    whole = SIMILAR.answer(case, asked)
    without = similar_tool(["0001"]).answer(case, asked)

    assert "recorded case 0001" in {fact.where for fact in whole}
    assert "recorded case 0001" not in {fact.where for fact in without}
    assert without


def test_a_cause_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(QuestionRefused, match="divergent-path"):
        SIMILAR.answer(opened("0001"), SimilarArguments(cause="gremlins"))
