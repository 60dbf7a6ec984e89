import json
from dataclasses import replace

from hypothesis import given

import verdicts
from forkpoint.model.incident import Cohort, Role
from forkpoint.model.op import Frame
from forkpoint.model.verdict import Verdict
from forkpoint.report.json_report import render_json


def test_findings_cite_evidence_by_id() -> None:
    document = json.loads(render_json(verdicts.FOUND))

    assert [item["id"] for item in document["evidence"]] == ["E1", "E2"]
    assert document["evidence"][0]["says"] == verdicts.ENTRY.says
    assert [finding["evidence"] for finding in document["findings"]] == [["E1", "E2"], ["E1", "E2"]]


def test_a_cohort_carries_its_stack_as_file_line_function() -> None:
    waiting, suspect = json.loads(render_json(verdicts.FOUND))["divergence"]["cohorts"]

    assert waiting["stack"] == []
    assert suspect == {
        "ranks": [0],
        "role": "elsewhere",
        "op": "all_reduce",
        "sizes": [[2]],
        "dtypes": ["Float"],
        "state": "entering",
        "where": None,
        "stack": [f"{frame.filename}:{frame.line} {frame.name}" for frame in verdicts.SKIPPED_BY_OTHERS],
    }


def test_a_deep_stack_is_cut_at_thirty_frames() -> None:
    cohort = Cohort((0,), Role.WAITING, stack=(Frame("f", "x.py", 1),) * 500)
    verdict = replace(verdicts.FOUND, divergence=replace(verdicts.DIVERGENCE, cohorts=(cohort,)))

    assert len(json.loads(render_json(verdict))["divergence"]["cohorts"][0]["stack"]) == 30


def test_what_is_not_known_is_null_or_empty() -> None:
    document = json.loads(render_json(verdicts.INCONCLUSIVE))

    assert document["symptom"] is None
    assert document["divergence"] is None
    assert document["suspects"] == document["findings"] == document["sites"] == []


def test_a_thousand_ranks_take_one_line() -> None:
    verdict = replace(verdicts.FOUND, suspects=tuple(range(1000)))

    assert f'  "suspects": {list(range(1000))},' in render_json(verdict).split("\n")


def test_text_that_looks_like_a_list_of_numbers_stays_as_it_is() -> None:
    verdict = replace(verdicts.FOUND, summary="[\n  1,\n  2\n]")

    assert json.loads(render_json(verdict))["summary"] == "[\n  1,\n  2\n]"


def test_undecodable_file_names_leave_json_that_strict_parsers_accept() -> None:
    document = json.loads(render_json(replace(verdicts.FOUND, summary="\udcff")))

    assert document["summary"] == r"\udcff"


@given(verdicts.VERDICTS)
def test_json_is_printable_ascii_and_loses_no_text(verdict: Verdict) -> None:
    text = render_json(verdict)

    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    assert json.loads(text)["summary"] == verdict.summary.encode("utf-8", "backslashreplace").decode()
