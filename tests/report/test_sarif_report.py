"""The verdict as SARIF 2.1.0, as GitHub code scanning takes it."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given

import verdicts
from forkpoint.model.verdict import Cause, Site, Verdict
from forkpoint.report.sarif import render_sarif
from looping import for_each
from report.hostile import STRINGS, hostile

OTHER = Site("metrics.py", 9, "compute", None, None, 0)


def run_of(verdict: Verdict) -> dict[str, Any]:
    document = json.loads(render_sarif(verdict))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    return run


def said(run: dict[str, Any]) -> list[str]:
    return [item["message"]["text"] for item in run["invocations"][0]["toolExecutionNotifications"]]


def test_the_first_site_is_the_place_and_the_others_are_related() -> None:
    run = run_of(replace(verdicts.FOUND, sites=(*verdicts.FOUND.sites, OTHER)))

    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("divergent-path", "error")
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "divergent-path"
    assert result["message"]["text"].split("\n") == [
        verdicts.FOUND.headline,
        verdicts.FOUND.summary,
        "Decided by: is_main_process()",
        "true on rank 0 only",
        "[compute](1)",
    ]
    (place,) = result["locations"]
    assert place["physicalLocation"] == {"artifactLocation": {"uri": "train.py"}, "region": {"startLine": 15}}
    (related,) = result["relatedLocations"]
    assert (related["id"], related["physicalLocation"]["region"]) == (1, {"startLine": 9})


def test_the_same_fork_is_known_again_on_another_line_and_another_machine() -> None:
    site = verdicts.FOUND.sites[0]
    moved = replace(site, file=f"/elsewhere/{site.file}", line=99)
    other = replace(site, condition="step == 3")

    prints = [
        run_of(replace(verdicts.FOUND, sites=(one,)))["results"][0]["partialFingerprints"]
        for one in (site, moved, other)
    ]

    assert prints[0] == prints[1] != prints[2]


@for_each(
    ("confidence", "cause", "level"),
    [(0.95, Cause.HOST_STALL, "error"), (0.7, Cause.HOST_STALL, "warning"), (0, Cause.INCONCLUSIVE, "note")],
)
def test_the_level_says_how_sure_it_is(confidence: float, cause: Cause, level: str) -> None:
    run = run_of(replace(verdicts.FOUND, confidence=confidence, cause=cause))

    assert run["results"][0]["level"] == level


def test_without_a_place_there_is_no_result_but_the_sentence_is_said() -> None:
    run = run_of(replace(verdicts.FOUND, sites=()))

    assert run["results"] == []
    assert said(run) == [f"{verdicts.FOUND.headline} The place in the source is not known."]


def test_a_healthy_job_has_neither() -> None:
    run = run_of(verdicts.HEALTHY)

    assert (run["results"], said(run)) == ([], [])


@for_each("cause", Cause)
def test_every_cause_is_a_rule_within_githubs_limits(cause: Cause) -> None:
    (rule,) = run_of(replace(verdicts.FOUND, cause=cause))["tool"]["driver"]["rules"]

    assert 0 < len(rule["shortDescription"]["text"]) <= 1024
    assert 0 < len(rule["fullDescription"]["text"]) <= 1024
    assert rule["help"]["text"]


def test_related_places_are_bounded() -> None:
    run = run_of(replace(verdicts.FOUND, sites=(OTHER,) * 500))

    assert len(run["results"][0]["relatedLocations"]) == 100


@for_each("string", STRINGS, ids=lambda s: ascii(s[:20]))
def test_a_hostile_string_is_neither_link_nor_control_character(string: str) -> None:
    document = render_sarif(hostile(string))

    assert document.isascii()
    assert len(document) < 100_000
    (result,) = json.loads(document)["runs"][0]["results"]
    text = result["message"]["text"]
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "](javascript" not in text.replace("\\]", "")
    assert "region" not in result["relatedLocations"][0]["physicalLocation"]


@given(verdicts.VERDICTS)
def test_any_verdict_gives_a_document(verdict: Verdict) -> None:
    document = render_sarif(verdict)

    assert document.isascii()
    assert len(json.loads(document)["runs"][0]["results"]) <= 1
