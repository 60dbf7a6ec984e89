"""SARIF 2.1.0, as GitHub code scanning takes it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forkpoint.lint import LintReport
from forkpoint.lint.render import sarif
from forkpoint.lint.render.sarif import line_hashes, render_sarif
from forkpoint.lint.rule import Related, Violation
from forkpoint.source import SourceNote
from tests.lint.samples import violation

pytestmark = pytest.mark.usefixtures("sample_rules")

FULL = violation("pkg/a b.py", 1, 2, 5, "good\n")
ADVISORY = Violation("doubtful-word", "b.py", 3, 3, 1, "f", "perhaps", advisory=True)


def run_of(*violations: Violation, notes: tuple[SourceNote, ...] = ()) -> dict[str, Any]:
    document = json.loads(render_sarif(LintReport(violations, notes, files=1, lines=1)))
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = document["runs"]
    return run


def said(run: dict[str, Any]) -> list[str]:
    return [item["message"]["text"] for item in run["invocations"][0]["toolExecutionNotifications"]]


def test_a_result_has_what_code_scanning_needs() -> None:
    (result,) = run_of(FULL)["results"]

    assert result["ruleId"] == "bad-word"
    assert result["level"] == "warning"
    assert result["message"]["text"] == "a bad word\nDecided by: rank == 0\nit is the rank\n[\\[here\\]](1)"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "pkg/a%20b.py"
    assert place["region"] == {"startLine": 1, "startColumn": 5, "endLine": 2}
    (related,) = result["relatedLocations"]
    assert (related["id"], related["physicalLocation"]["region"]) == (1, {"startLine": 1})


def test_every_result_points_to_its_rule() -> None:
    run = run_of(FULL, ADVISORY)
    rules = run["tool"]["driver"]["rules"]

    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == ["bad-word", "doubtful-word"]
    assert [result["level"] for result in run["results"]] == ["warning", "note"]
    for rule in rules:
        assert len(rule["id"]) <= 255
        assert 0 < len(rule["shortDescription"]["text"]) <= 1024
        assert 0 < len(rule["fullDescription"]["text"]) <= 1024
        assert rule["help"]["text"]
        assert rule["help"]["markdown"]
        assert len(rule["properties"]["tags"]) <= 10


def test_notes_are_notifications() -> None:
    run = run_of(notes=(SourceNote("old.py", "not parsed: line 1"),))

    assert run["results"] == []
    assert said(run) == ["not parsed: line 1"]


def test_results_past_the_limit_are_left_out_doubtful_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MAX_RESULTS", 3)
    monkeypatch.setattr(sarif, "MAX_KEPT", 2)

    run = run_of(ADVISORY, ADVISORY, FULL, FULL)

    assert [result["level"] for result in run["results"]] == ["warning", "warning", "note"]
    assert said(run) == [
        "1 of 4 results left out: code scanning takes no more",
        "GitHub code scanning keeps 2 of these 3 results",
    ]


def test_a_document_too_large_is_halved_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MAX_GZIP_BYTES", 3000)
    many = [replace(FULL, line=n, end_line=n, message=f"{n * 7919 % 10007}") for n in range(1, 401)]

    run = run_of(*many)

    assert 0 < len(run["results"]) < 400
    assert said(run)[0] == f"{400 - len(run['results'])} of 400 results left out: code scanning takes no more"


def test_related_places_and_notes_are_bounded() -> None:
    many = replace(FULL, related=tuple(Related("a.py", n, "here") for n in range(1, 200)))

    run = run_of(many, notes=tuple(SourceNote("a.py", "x") for _ in range(150)))

    assert len(run["results"][0]["relatedLocations"]) == 100
    assert len(said(run)) == 101
    assert said(run)[0] == "50 more notes than are listed here"


def test_a_file_outside_the_folder_is_named_absolutely(tmp_path: Path) -> None:
    (result,) = run_of(replace(FULL, file=str(tmp_path / "a.py")))["results"]

    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].startswith("file:///")


def test_an_alert_is_known_again_when_lines_above_it_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    at_2, at_3 = (replace(FULL, file="train.py", line=line, end_line=line) for line in (2, 3))

    Path("train.py").write_text("x = 1\nbad = 1\n")
    before = run_of(at_2)["results"][0]["partialFingerprints"]
    Path("train.py").write_text("x = 1\ny = 2\nbad = 1\n")
    after = run_of(at_3)["results"][0]["partialFingerprints"]

    assert before == after
    assert "partialFingerprints" not in run_of(replace(at_2, file="gone.py", line=1))["results"][0]


def test_a_line_has_the_hash_that_githubs_own_upload_gives_it() -> None:
    hashes = ["271789c17abda88f:1", "54703d4cd895b18:1", "180aee12dab6264:1", "a23a3dc5e078b07b:1"]

    assert line_hashes(" a\nb\n  \t\tc\n d") == hashes
    assert line_hashes("") == ["c129715d7a2bc9a3:1"]


def test_equal_lines_are_told_apart_and_blanks_and_line_ends_do_not_count() -> None:
    same = line_hashes("a" * 100 + "\n" + "a" * 100 + "\n")

    assert [part.partition(":")[2] for part in same[:2]] == ["1", "2"]
    assert same[0].partition(":")[0] == same[1].partition(":")[0]
    assert line_hashes("a b\r\n\tc\r") == line_hashes("ab\nc\n")
