"""Budgets, and endpoints that fail: the explanation ends where it is, and the verdict stands as before."""

import re
from itertools import count, repeat

import pytest

from agent.claim_cases import recorded
from agent.endpoints import KEY, MODELS
from agent.scripted_server import Cut, Flood, HangUp, Raw, Refusal, Silent, Status, Trickle, calls, says
from agent.walks import (
    ISSUED,
    LOCAL,
    QUIET,
    Unwritten,
    Walk,
    choose,
    go_on,
    reading,
    right,
    says_in_turn,
    submit,
    walk,
    walk_in_process,
)
from forkpoint.agent.model import Account, Budget, Usage
from forkpoint.agent.providers import Style, connect
from forkpoint.agent.talk import Talk
from forkpoint.agent.workflow import explain
from forkpoint.report.json_report import render_json
from looping import for_each

PATIENT = Budget(seconds=600.0)
SHORT = Budget(seconds=0.4)


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("MINE", KEY)


@pytest.fixture(autouse=True)
def _verdict_stands():
    before = render_json(recorded("0001").verdict)
    yield
    assert render_json(recorded("0001").verdict) == before


# ------------------------------------------------------------------------------------------------------------ budgets


def test_requests_end_and_what_came_so_far_stays():
    found = walk([*reading(), submit(ISSUED), choose("X1")], budget=Budget(requests=6))

    assert found.explanation.ended == "the budget of 6 requests is used up"
    assert len(found.requests) == found.explanation.requests == 6
    assert [c.check.status for c in found.explanation.claims] == ["supported"]
    assert found.explanation.remedies == ()


def test_tokens_end_it():
    found = walk(right(), budget=Budget(tokens=300))

    assert found.explanation.ended == "the budget of 300 tokens is used up"
    assert (found.explanation.requests, found.explanation.usage) == (3, Usage(300, 60))


def test_a_slow_model_leaves_out_phases_and_still_hands_in_its_hypothesis():
    ticks = count(0, 25).__next__  # before and after each request: 25 seconds of waiting
    model = says_in_turn([go_on(), go_on(), submit(ISSUED), choose("X1")])
    found = explain(Talk(recorded("0001"), model, Account(Budget(seconds=80.0)), Unwritten(), QUIET, ticks))

    assert [c.check.status for c in found.claims] == ["supported"]
    assert [why for why in found.refused if "left out" in why] == [
        f"the phase {name} was left out, to leave budget for a hypothesis"
        for name in ("cohorts", "earliest mismatch", "source")
    ]


def test_cost_ends_it_where_the_price_is_known():
    one = walk([go_on()], "openai:gpt-5", budget=Budget(requests=1)).explanation.usage.cost_usd
    assert one is not None
    found = walk(right(), "openai:gpt-5", budget=Budget(cost_usd=one * 1.5))

    assert found.explanation.ended == f"the budget of ${one * 1.5:g} is used up"
    assert found.explanation.requests == 2
    assert found.explanation.usage.cost_usd == pytest.approx(one * 2)


def test_cost_cannot_end_it_where_the_price_is_not_known():
    found = walk(right(), LOCAL, budget=Budget(cost_usd=0.0005))

    assert (found.explanation.ended, found.explanation.usage.cost_usd) == (None, None)


def test_seconds_of_waiting_end_it():
    ticks = count(0, 25).__next__  # before and after each request: 25 seconds of waiting
    model = says_in_turn(right())
    found = explain(Talk(recorded("0001"), model, Account(Budget(seconds=50.0)), Unwritten(), QUIET, ticks))

    assert (found.ended, found.requests) == ("the budget of 50 seconds is used up", 2)


def test_questions_end_and_the_rest_goes_on():
    asked = [calls("explain", query=f"Xid {number}") for number in range(13, 16)]
    found = walk([*asked[:2], *reading(), submit(ISSUED), choose()], budget=Budget(tool_calls=2))

    assert (found.explanation.ended, found.explanation.tool_calls) == (None, 2)


@for_each(
    "wrong",
    [
        {"requests": 0},
        {"requests": -1},
        {"tokens": 0},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"facts": 0},
        {"cost_usd": 0.0},
        {"tool_calls": -1},
    ],
    ids=str,
)
def test_a_budget_that_nobody_can_spend_is_none(wrong):
    with pytest.raises(ValueError, match="a number above zero"):
        Budget(**wrong)


def test_usage_that_makes_no_sense_is_counted_as_far_as_it_does():
    odd = [Usage(-5, 2, None), Usage(10**400, 3, float("inf")), Usage(1, 1, float("nan"))]
    replies = [type(go_on())("", go_on().calls, usage) for usage in odd]

    found = walk_in_process(says_in_turn([*replies, *reading(), submit(), choose()]), budget=Budget(tokens=10**13))

    assert found.usage.output_tokens > 6
    assert 10**12 <= found.usage.input_tokens < 10**13
    assert found.usage.cost_usd is None


# ---------------------------------------------------------------------------------------------------------- endpoints


def ended(found: Walk) -> str:
    assert found.explanation.ended is not None
    return found.explanation.ended.partition(": ")[2]


@for_each("spec", [LOCAL, *MODELS[:2], MODELS[3]])
@for_each(
    ("fault", "told"),
    [
        (Status(500, "out of memory"), r"failed \(status 500\): out of memory"),
        (Status(401), r"requires a key \(status 401\)|did not accept the key in MINE"),
        (Refusal(), "refused to answer"),
        (Cut(says("Rank 2 was late because of"), 3), "the answer broke off|ended without a"),
        (HangUp(), "the connection ended before the answer did"),
        (Raw(b"<html>gateway</html>", "text/html"), "sent text/html instead of a stream of events"),
    ],
    ids=["500", "401", "refusal", "cut", "hang up", "html"],
)
def test_an_endpoint_that_fails_is_said_in_one_line(spec, fault, told):
    found = walk([go_on("F1"), fault, fault], spec, budget=PATIENT)

    assert found.explanation.ended is not None
    assert "\n" not in found.explanation.ended
    assert re.search(told, ended(found))
    assert (found.explanation.requests, found.explanation.hypothesis) == (1, None)


@for_each("style", list(Style))
@for_each("fault", [Silent(), Trickle(), Flood()], ids=["silent", "trickles", "floods"])
def test_an_endpoint_that_never_comes_to_an_end_is_not_waited_for(fault, style):
    found = walk([fault], style=style, budget=SHORT)

    assert ended(found).startswith(("no complete answer within 0.4 s", "sent more than 8 MiB"))


def test_a_dead_endpoint_is_said_and_nothing_else_is_lost():
    model = connect(LOCAL, "http://127.0.0.1:9/v1", None, Style.TOOLS)
    found = explain(Talk(recorded("0001"), model, Account(Budget()), Unwritten(), QUIET))

    assert found.ended == "127.0.0.1:9: connection refused: nothing listens there"
    assert (found.requests, found.claims, found.remedies) == (0, (), ())


def test_what_was_handed_in_before_the_endpoint_failed_stays():
    found = walk([*reading(), submit(ISSUED), Status(500), Status(500)])

    assert ended(found).startswith("failed (status 500)")
    assert [c.check.status for c in found.explanation.claims] == ["supported"]


def test_one_failure_that_a_client_asks_again_for_is_no_failure():
    found = walk([Status(503), *right()])

    assert (found.explanation.ended, found.explanation.requests) == (None, len(right()))
    assert len(found.requests) == len(right()) + 1


def test_a_model_that_never_stops_asking_comes_to_an_end():
    asked = (calls("explain", query=f"Xid {number}") for number in count(1))
    found = walk(asked, budget=Budget(requests=100))

    assert found.explanation.ended is None
    assert found.explanation.requests < 30


def test_a_model_that_says_nothing_comes_to_an_end():
    found = walk(repeat(says("")))

    assert (found.explanation.ended, found.explanation.requests, found.explanation.hypothesis) == (None, 8, None)
