"""The engine leads a model through its phases: a scripted one, behind real clients, on every wire and in both styles."""

import re
from functools import cache

import pytest

from agent.claim_cases import recorded
from agent.endpoints import KEY, MODELS
from agent.scripted_server import both, calls, says, writes
from agent.walks import (
    CAPTURE,
    ISSUED,
    LOCAL,
    READING,
    InProcess,
    Walk,
    choose,
    claim,
    go_on,
    reading,
    right,
    submit,
    walk,
    walk_in_process,
)
from forkpoint.agent.case import ClaimStatus
from forkpoint.agent.claims import CLAIMS
from forkpoint.agent.model import Budget
from forkpoint.agent.providers import Style
from forkpoint.agent.talk import HYPOTHESIS
from forkpoint.brief.case import open_case
from forkpoint.report.json_report import render_json
from forkpoint.source.apis import Origin
from looping import for_each

PHASES = [
    ("why", "evidence", "files", "log_lines", "explain", "similar", "go_on"),
    ("progress", "waits", "log_lines", "go_on"),
    ("table", "threads", "go_on"),
    ("table", "channels", "stack_diff", "go_on"),
    ("read_source", "callers", "taint", "lint", "history", "stack_diff", "threads", "go_on"),
    ("submit_hypothesis",),
    ("choose", "offer_at"),
]


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("MINE", KEY)


@cache
def plain(style: Style = Style.TOOLS) -> Walk:
    """A model that asks nothing and claims nothing."""
    return walk([*reading(), submit(), choose()], style=style, wired=True)


def ids_in(text: str) -> set[str]:
    """Of facts that stand in what was said."""
    return set(re.findall(r"^\[(F\d+)\]", text, re.MULTILINE))


def evidence_enums(node: object) -> list[list[str]]:
    """What every list of evidence in a request's schemas may hold."""
    if isinstance(node, list):
        return [found for item in node for found in evidence_enums(item)]
    if not isinstance(node, dict):
        return []
    here = [node["evidence"]["items"]["enum"]] if isinstance(node.get("evidence"), dict) else []
    return here + [found for item in node.values() for found in evidence_enums(item)]


# ------------------------------------------------------------------------------------------------------- a whole walk


@for_each("style", list(Style))
@for_each("spec", [LOCAL, *(spec for spec in MODELS if not spec.startswith("openai-compatible"))])
def test_a_model_that_is_right_is_borne_out_on_every_wire(spec, style):
    before = render_json(recorded("0001").verdict)

    found = walk(right(), spec, style).explanation

    assert (found.ended, found.refused) == (None, ())
    assert [c.status for c in found.claims] == [ClaimStatus.SUPPORTED] * 3
    assert [(r.kind, r.where, r.trusted) for r in found.remedies] == [("fix", "train.py:15", True)]
    assert (found.requests, found.tool_calls) == (len(right()), 3)
    assert (found.usage.input_tokens, found.usage.output_tokens) == (100 * len(right()), 20 * len(right()))
    assert found.hypothesis is not None
    assert found.hypothesis.suspects == [0]
    assert render_json(recorded("0001").verdict) == before


@pytest.mark.parametrize("style", list(Style))
def test_each_phase_offers_its_own_tools_and_no_others(style):
    requests = plain(style).requests

    assert [request.offered for request in requests] == PHASES


def test_each_phase_begins_with_facts_that_nobody_asked_for():
    requests = plain().requests

    assert all(ids_in(request.text) for request in requests[:READING])
    assert "Phase 4, earliest mismatch" in requests[3].text
    assert "rank 0: all_reduce [2] Float" in requests[3].text


@pytest.mark.parametrize("style", list(Style))
def test_only_ids_of_facts_that_were_shown_can_be_cited(style):
    script = [calls("similar", cause=None), go_on(), *reading()[1:], submit(), choose()]
    requests = walk(script, style=style, wired=True).requests

    seen: set[str] = set()
    for request in requests[:-1]:
        seen |= ids_in(request.text)
        enums = evidence_enums(request.body)
        assert enums
        assert [set(enum) for enum in enums] == [seen] * len(enums)
    assert len(evidence_enums(requests[1].body)[0]) > len(evidence_enums(requests[0].body)[0]), "a tool showed more"
    assert len(evidence_enums(requests[-2].body)) == len(CLAIMS), "every kind of claim cites"


def test_a_probe_or_fix_can_be_chosen_only_of_those_offered():
    request = plain().requests[-1]

    (tool,) = [tool for tool in request.body["tools"] if tool["function"]["name"] == "choose"]
    assert tool["function"]["parameters"]["properties"]["remedies"]["items"] == {
        "type": "string",
        "enum": ["P1", "P2", "X1"],
    }


def test_without_source_there_is_no_probe_or_fix_to_choose():
    found = walk([*reading(), submit(ISSUED)], case=open_case([CAPTURE]))

    assert (found.explanation.ended, found.explanation.remedies) == (None, ())
    assert found.requests[-1].offered == ("submit_hypothesis",)


def test_notes_and_kept_facts_stay_in_view_and_others_do_not():
    script = [go_on("F2", note="Four dumps."), *reading()[1:], submit(), choose()]

    requests = walk(script).requests

    assert "[F1]" in requests[0].text
    assert "[F1]" not in requests[1].text
    assert all("Your note: Four dumps." in request.text and "[F2]" in request.text for request in requests[1:])


def test_the_model_is_told_every_claim_and_every_reason_there_is():
    assert [o for o in Origin if o not in HYPOTHESIS] == []
    kinds = {claim["kind"] for claim in (ISSUED, *(claim(k) for k in ("missing", "frame", "guards", "can-differ")))}
    assert [kind for kind in (*kinds, "log-says") if kind not in HYPOTHESIS] == []


# ------------------------------------------------------------------------------------------- what a model does wrong


def test_the_same_question_is_answered_once_in_a_phase():
    asked = calls("similar", cause=None)
    same = writes("similar", '{ "cause" : null }')
    found = walk([asked, both(asked, same), go_on(), *reading()[1:], submit(), choose()])

    assert "[F" in found.requests[1].last
    assert found.requests[2].text.count("refused: this was asked before, and the answer has not changed") == 2
    assert found.explanation.tool_calls == 1


def test_what_is_no_longer_in_view_may_be_asked_again():
    asked = calls("log_lines", file=None, rank=0, contains=None, line=None, around=None, since=None, until=None)
    found = walk([asked, go_on(), asked, go_on(), *reading()[2:], submit(), choose()])

    assert [ids_in(found.requests[n].last) for n in (1, 3)] == [ids_in(found.requests[1].last)] * 2
    assert ids_in(found.requests[1].last)
    assert found.explanation.tool_calls == 2


def test_a_tool_of_another_phase_is_refused():
    found = walk([calls("table", group="default_pg", seq=16, around=1), *reading(), submit(), choose()])

    told = "refused: no such tool in this phase; the tools are why, evidence, files, log_lines, explain, similar, go_on"
    assert told in found.requests[1].last
    assert found.explanation.tool_calls == 0


@for_each(
    ("arguments", "told"),
    [
        ("{bad", "not accepted: arguments: Invalid JSON"),
        ("[1]", "not accepted: arguments: Input should be an object"),
        ('{"cause": 3}', "not accepted: cause: Input should be a valid string"),
        ('{"cause": null, "x": 1}', "not accepted: x: Extra inputs are not permitted"),
        ('{"cause": null, "' + "x" * 5000 + '": 1}', "not accepted: " + "x" * 300),
        ('{"cause": "\\ud800"}', "not accepted: "),
    ],
)
def test_arguments_that_cannot_be_read_are_sent_back_with_what_is_wrong(arguments, told):
    found = walk([writes("similar", arguments), *reading(), submit(), choose()])

    assert told in found.requests[1].last
    assert len(found.requests[1].last) < 500
    assert found.explanation.ended is None


def test_a_question_that_cannot_be_answered_is_refused_with_what_there_is():
    found = walk([calls("similar", cause="gremlins"), *reading(), submit(), choose()])

    assert "refused: there is no such cause; there are divergent-path" in found.requests[1].last


def test_of_too_many_calls_at_once_the_first_few_are_answered():
    asked = [calls("explain", query=f"Xid {number}") for number in range(13, 20)]
    found = walk([both(*asked), *reading(), submit(), choose()])

    assert found.requests[1].text.count("not answered: too many calls at once") == 3
    assert found.explanation.tool_calls == 4


def test_a_phase_ends_when_it_has_asked_often_enough():
    asked = [calls("explain", query=f"Xid {number}") for number in range(13, 17)]
    found = walk([*asked, *reading()[1:], submit(), choose()])

    assert [request.offered for request in found.requests[:5]] == [PHASES[0]] * 3 + [("go_on",), PHASES[1]]
    assert found.explanation.tool_calls == 3, "what was not offered is not answered"


@pytest.mark.parametrize("reply", [says("I see nothing."), says("")], ids=["text", "nothing"])
def test_a_reply_without_calls_ends_the_phase(reply):
    found = walk([reply] * READING + [submit(ISSUED), choose()])

    assert [request.offered for request in found.requests] == PHASES
    assert [c.status for c in found.explanation.claims] == [ClaimStatus.SUPPORTED]


def test_a_model_that_may_ask_nothing_is_shown_what_there_is():
    found = walk([*reading(), submit(ISSUED), choose()], budget=Budget(tool_calls=0))

    assert [request.offered for request in found.requests] == [("go_on",)] * READING + [
        ("submit_hypothesis",),
        ("choose",),
    ]
    assert found.explanation.ended is None


def test_questions_are_no_longer_offered_when_they_are_used_up():
    asked = calls("similar", cause=None)
    found = walk([asked, *reading(), submit(), choose()], budget=Budget(tool_calls=1))

    assert [request.offered for request in found.requests[:3]] == [PHASES[0], ("go_on",), ("go_on",)]


def test_few_facts_are_shown_at_a_time_where_the_budget_says_so():
    found = walk([*reading(), submit(), choose()], budget=Budget(facts=2))

    assert [len(ids_in(request.last)) for request in found.requests[:READING]] == [3, 3, 2, 3, 3]
    assert "left out: there are more than these 2 facts" in found.requests[0].last


def test_a_reply_of_a_megabyte_is_cut_before_it_is_said_again():
    heard = []
    script = iter([both(says("x" * 1_000_000), calls("similar", cause=None)), *reading(), submit(), choose()])

    def answer(messages, offers):
        heard.append(sum(len(message.text) for message in messages))
        return next(script)

    found = walk_in_process(InProcess(answer))

    assert found.ended is None
    assert 100_000 < heard[1] < 150_000
