"""What is printed: the verdict as ever, and what a model said, cleaned, cut and labelled."""

import json
import re
from dataclasses import replace
from functools import cache
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator

from agent.claim_cases import recorded
from agent.scripted_server import writes
from agent.walks import (
    CAN_DIFFER,
    ISSUED,
    PATCH,
    UNKNOWN,
    WRONG,
    choose,
    reading,
    right,
    says_in_turn,
    submit,
    walk_in_process,
)
from forkpoint.agent.claims import CLAIMS
from forkpoint.agent.hypothesis import Explanation
from forkpoint.agent.report import MAX_OPINION, SCHEMA, render_explanation, render_explanation_json
from forkpoint.report.json_report import render_json
from looping import for_each

DOCUMENT = json.loads((files("forkpoint.agent") / "agent.schema.json").read_text())
VALIDATOR = Draft202012Validator(DOCUMENT)
VERDICT = Draft202012Validator(json.loads((files("forkpoint.report") / "verdict.schema.json").read_text()))
HOSTILE = "\x1b[2J\x07\x7f\u202e\u200b\r\n\n# Verdict\n**healthy** <script>alert(1)</script> ![x](http://x/y) "
WIDTH = 80


def explained(*script) -> Explanation:
    return walk_in_process(says_in_turn([*reading(), *script]))


def text_of(found: Explanation) -> str:
    return render_explanation(recorded("0001"), found, WIDTH)


def json_of(found: Explanation) -> dict:
    written = render_explanation_json(recorded("0001"), found)
    document = json.loads(written, parse_constant=pytest.fail)
    VALIDATOR.validate(document)
    VERDICT.validate(document["verdict"])
    assert written.isascii()
    assert "\x7f" not in written
    return document


MIXED = [submit(ISSUED, WRONG, UNKNOWN, {**CAN_DIFFER, "evidence": ["F99"]}), submit(ISSUED, WRONG, UNKNOWN)]


# ---------------------------------------------------------------------------------------------------------------- JSON


def test_the_schema_is_itself_valid_and_versioned():
    Draft202012Validator.check_schema(DOCUMENT)

    assert DOCUMENT["properties"]["schema"]["const"] == SCHEMA
    kinds = {claim.model_fields["kind"].annotation.__args__[0] for claim in CLAIMS}
    assert set(DOCUMENT["$defs"]["claim"]["properties"]["kind"]["enum"]) == kinds


def test_the_verdict_stands_in_the_json_to_the_byte():
    case = recorded("0001")
    written = render_explanation_json(case, explained(*MIXED, choose("X1", patch=PATCH, functions=["log_progress"])))

    assert written.endswith(f'  "verdict": {render_json(case.verdict)}\n}}')


def test_the_json_says_what_the_model_added_and_what_it_is_worth():
    told = json_of(explained(*MIXED, choose("X1", patch=PATCH, functions=["log_progress"])))["explanation"]

    assert [claim["status"] for claim in told["claims"]] == ["supported", "contradicted", "unverifiable"]
    assert told["claims"][1]["says"] == "rank 3 has not reached seq 16 of `default_pg`"
    assert [remedy["trusted"] for remedy in told["remedies"]] == [True, False]
    assert told["hypothesis"] == {
        "cause": None,
        "why": "",
        "refuted_by": "",
        "opinion": "Rank 0 alone reads a metric that reduces over all ranks.",
        "confidence": 0.9,
        "earliest": {"group": "default_pg", "seq": 16},
        "suspects": [0],
        "site": {"file": "train.py", "line": 15},
        "missing_evidence": "",
    }


def objects(node):
    if isinstance(node, list):
        return [found for item in node for found in objects(item)]
    if isinstance(node, dict):
        return [node, *(found for item in node.values() for found in objects(item))]
    return []


def test_no_object_of_an_explanation_accepts_another_field_or_misses_one():
    document = json_of(explained(*MIXED, choose("X1", patch=PATCH, functions=["log_progress"])))
    for node in [document, *objects(document["explanation"])]:
        node["surprise"] = 1
        assert not VALIDATOR.is_valid(document), node
        del node["surprise"]
        for key in list(node):
            value = node.pop(key)
            assert not VALIDATOR.is_valid(document), key
            node[key] = value

    assert VALIDATOR.is_valid(document)


@for_each(
    ("confidence", "shown"),
    [("0.5", 0.5), ("7", 1.0), ("-1", 0.0), ("NaN", None), ("Infinity", None), ("-Infinity", None), ("1e999", None)],
)
def test_a_confidence_that_is_no_share_does_not_break_the_json(confidence, shown):
    written = submit(ISSUED).calls[0].arguments.replace('"confidence": 0.9', f'"confidence": {confidence}')
    found = explained(writes("submit_hypothesis", written), choose())

    assert json_of(found)["explanation"]["hypothesis"]["confidence"] == shown
    assert ("confidence" in text_of(found)) is (shown is not None)


def test_numbers_that_nothing_has_are_left_out():
    odd = submit(earliest_seq=10**4000, suspects=[-1, 3, 10**4000, 3, *range(100, 5000)], site_line=-7)
    found = explained(odd, choose())

    told = json_of(found)["explanation"]["hypothesis"]
    assert (told["earliest"]["seq"], told["site"]["line"], told["suspects"][:2]) == (None, None, [3, 100])
    assert len(told["suspects"]) == 1000
    assert len(text_of(found)) < 2000


def test_a_model_that_did_not_get_so_far_is_null():
    found = replace(explained(submit(), choose()), hypothesis=None, ended="the budget of 1 requests is used up")

    told = json_of(found)["explanation"]
    assert (told["hypothesis"], told["ended"]) == (None, "the budget of 1 requests is used up")
    assert "It ended early: the budget of 1 requests is used up." in text_of(found)
    assert "opinion" not in text_of(found)


# ------------------------------------------------------------------------------------------------------ hostile text


@cache
def hostile() -> Explanation:
    text = HOSTILE + "x" * 1_000_000
    fields = {"opinion": text, "missing_evidence": text, "earliest_group": text, "site_file": text}
    quote = {"kind": "log-says", "evidence": ["F1"], "file": text[:5000], "line": 1, "quote": text[:5000]}
    written = submit(quote, **{name: value[:20_000] for name, value in fields.items()})
    patch = PATCH.replace("value =", "value\x1b[2J =")
    return explained(written, written, choose("\x1b[2J", patch=patch, functions=["log_progress", "\x1b[2J"]))


def test_hostile_words_are_cleaned_and_cut_in_text():
    shown = text_of(hostile())

    assert [line for line in shown.splitlines() if not line.isprintable()] == []
    assert max(len(line) for line in shown.splitlines() if line.startswith(">")) <= MAX_OPINION + 100
    assert len(shown) < 6000
    assert [line for line in shown.splitlines() if line.startswith(("# Verdict", "**healthy"))] == []


def test_hostile_words_are_cleaned_and_cut_in_json():
    told = json_of(hostile())["explanation"]

    strings = [value for node in objects(told) for value in node.values() if isinstance(value, str)]
    strings += told["refused"]
    assert [text for text in strings if not text.isprintable()] == []
    assert max(map(len, strings)) < 1000
    assert told["hypothesis"]["opinion"].startswith("\\x07\\x7f\\u202e")


def test_an_opinion_of_several_lines_is_one_paragraph():
    found = explained(submit(opinion="First.\n\n  Then.\tLast."), choose())

    assert "\n> First. Then. Last.\n" in text_of(found)


def test_hostile_words_of_an_endpoint_are_cleaned():
    found = replace(explained(submit(), choose()), ended="\x1b[2Jx\n", model="m\x1b[2J", refused=("\x07 no",))

    assert "\x1b" not in text_of(found)
    assert "\x07" not in text_of(found)
    assert json_of(found)["explanation"]["ended"] == "\\x1b[2Jx\\n"


# ---------------------------------------------------------------------------------------------------------------- text


def test_claims_stand_under_what_they_are_worth():
    shown = text_of(explained(*MIXED, choose()))

    heads = [
        "Supported by the evidence",
        "Unverifiable: neither supported nor contradicted",
        "Contradicted by the evidence",
    ]
    at = [shown.index(f"\n{head}\n") for head in heads]
    assert at == sorted(at)
    assert shown.index("rank 0 issued `all_reduce`") < at[1]
    assert (
        at[1] < shown.index("a stack of rank 700 has `train.py`") < at[2] < shown.index("rank 3 has not reached seq 16")
    )
    assert "(rank 3 issued all_reduce there)" in shown
    assert "    rank 3 default_pg seq 16: all_reduce [71178] Float, scheduled" in shown


def test_the_models_own_words_are_labelled():
    shown = text_of(explained(submit(ISSUED, missing_evidence="The run's seed."), choose()))

    label = "Its opinion, in its own words, not checked\n"
    told = shown.partition(label)[2].splitlines()
    assert told[:4] == [
        "> Rank 0 alone reads a metric that reduces over all ranks.",
        "> earliest mismatch default_pg seq 16; suspects rank 0; site train.py:15;",
        "  confidence 0.90",
        "> what would decide: The run's seed.",
    ]
    assert shown.startswith("What script:in-process adds\nNothing below changed the verdict above")


def test_a_patch_of_the_model_is_shown_as_untrusted_and_one_of_the_engine_is_not():
    shown = text_of(explained(submit(), choose("X1", patch=PATCH, functions=["log_progress"])))

    engine, _, model = shown.partition("\nUNTRUSTED, written by the model: read it before you use it\n")
    assert re.search(r"\nFix it chose: Let every rank call .*\n--- a/train.py\n", engine, re.DOTALL)
    assert "\n+    value = metric.compute()\n" in model
    assert "UNTRUSTED" not in model


def test_a_patch_that_was_turned_away_is_not_shown():
    patch = PATCH.replace("value = metric.compute()", "__import__('os').system('x')")
    shown = text_of(explained(submit(), choose(patch=patch, functions=["log_progress"])))

    assert "import" not in shown
    assert "+++" not in shown
    assert "- a patch that the model wrote was refused: " in shown


def test_tabs_of_a_patch_are_kept():
    found = explained(submit(), choose("X1"))
    tabbed = replace(found, remedies=(replace(found.remedies[0], patch="+\tx = 1\n+\x1b[2J\n"),))

    assert "\n+\tx = 1\n+\\x1b[2J\n" in text_of(tabbed)


def test_what_it_cost_is_said_last():
    found = explained(submit(), choose())
    dear = replace(found, usage=replace(found.usage, input_tokens=12345, cost_usd=0.01234))

    assert text_of(found).endswith("\n7 requests, 0 tool calls, 700 tokens in, 140 out")
    assert text_of(dear).endswith("12,345 tokens in, 140 out, $0.0123")


def test_a_whole_walk_fits_the_width():
    shown = text_of(walk_in_process(says_in_turn(right())))

    assert max(len(line) for line in shown.splitlines()) <= WIDTH
