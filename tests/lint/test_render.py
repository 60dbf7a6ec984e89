"""Text, JSON and annotations."""

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from forkpoint.lint import LintReport, Options, lint
from forkpoint.lint.render.github import render_annotations
from forkpoint.lint.render.json_report import SCHEMA, read_json, render_json
from forkpoint.lint.render.text import render_text
from forkpoint.lint.rule import Related, Violation
from forkpoint.source import SourceNote
from tests.lint.samples import program_of, violation

DOCUMENT = json.loads((files("forkpoint.lint.render") / "lint.schema.json").read_text())
PLAIN = Violation("bad-word", "b.py", 3, 3, 1, "f", "wrong")
ADVISORY = replace(PLAIN, rule="doubtful-word", advisory=True)
FULL = violation("a.py", 1, 2, 5, "good\n")


def report_of(*violations: Violation, notes: tuple[SourceNote, ...] = ()) -> LintReport:
    return LintReport(violations, notes, files=2, lines=1234)


def shown(report: LintReport, width: int | None = None) -> list[str]:
    return ["".join(text for text, _ in line) for line in render_text(report, width)]


def test_text_names_the_place_then_explains_in_two_lines_and_counts() -> None:
    assert shown(report_of(FULL, PLAIN, ADVISORY)) == [
        "a.py:1:5: bad-word a bad word",
        "    rank == 0",
        "    it is the rank; line 1: [here]",
        "",
        "b.py:3:1: bad-word wrong",
        "b.py:3:1: doubtful-word wrong",
        "",
        "3 violations (1 advisory) in 2 files; read 2 files, 1,234 lines; --fix repairs 1",
    ]


def test_nothing_found_is_said() -> None:
    assert shown(report_of()) == ["no violations in 2 files, 1,234 lines"]


def test_a_related_place_in_another_file_is_named_in_full() -> None:
    assert "    c.py:9: waits" in shown(report_of(replace(PLAIN, related=(Related("c.py", 9, "waits"),))))


def test_notes_are_shown_and_bounded() -> None:
    lines = shown(report_of(notes=tuple(SourceNote(f"{n}.py", "not parsed") for n in range(25))))

    assert lines[0] == "0.py: note: not parsed"
    assert lines[20] == "and 5 more notes: --json"


def test_what_explains_is_cut_and_what_names_the_place_is_not() -> None:
    long = replace(FULL, message="m" * 200, condition="c" * 200, why="w" * 200)

    place, condition, why, *_ = shown(report_of(long), width=50)

    assert place.endswith("m" * 200)
    assert len(condition) == len(why) == 50
    assert condition.endswith(" ...")


def test_source_cannot_act_on_a_terminal() -> None:
    hostile = replace(FULL, file="\x1b[2J.py", message="\x1b[2J", condition="a\nb\x1b", why="\x1b")
    report = report_of(hostile, notes=(SourceNote("\x1b", "\x1b"),))

    assert "\x1b" not in "".join(shown(report))
    assert "\x1b" not in render_json(report)


def test_the_schema_is_itself_valid_and_versioned() -> None:
    Draft202012Validator.check_schema(DOCUMENT)

    assert DOCUMENT["properties"]["schema"]["const"] == SCHEMA


@pytest.mark.usefixtures("sample_rules")
def test_json_validates_and_reads_back_the_same(tmp_path: Path) -> None:
    program_of(tmp_path, "print 'x'\n", "old.py")
    report = lint(program_of(tmp_path, "bad = '\x7f\u2028'\n"), Options())

    document = render_json(report)

    Draft202012Validator(DOCUMENT).validate(json.loads(document))
    assert document.isascii()
    assert "\x7f" not in document
    assert read_json(document) == report
    assert (len(report.violations), len(report.notes)) == (1, 1)


def test_json_of_a_name_that_is_no_text_is_valid() -> None:
    document = json.loads(render_json(report_of(replace(FULL, file="a\udcff.py"))))

    document["violations"][0]["file"].encode("utf-8")


def test_annotations_are_commands_that_github_reads() -> None:
    assert list(render_annotations(report_of(FULL, PLAIN, ADVISORY, notes=(SourceNote("n.py", "not parsed"),)))) == [
        "::warning file=a.py,line=1,endLine=2,title=forkpoint bad-word::a bad word%0Arank == 0%0Ait is the rank",
        "::warning file=b.py,line=3,endLine=3,col=1,title=forkpoint bad-word::wrong",
        "::notice file=b.py,line=3,endLine=3,col=1,title=forkpoint doubtful-word::wrong",
        "::notice file=n.py::not parsed",
    ]


def test_source_cannot_start_a_command_of_its_own() -> None:
    hostile = replace(PLAIN, file="a,b:c%\n::error::x.py", message="50 %\n::error::x")

    (line,) = render_annotations(report_of(hostile))

    assert "\n" not in line
    assert "file=a%2Cb%3Ac%25%0A%3A%3Aerror%3A%3Ax.py," in line
    assert line.endswith("::50 %25\\n::error::x")


def test_what_github_does_not_show_is_counted_in_front() -> None:
    first, *rest = render_annotations(report_of(*[PLAIN] * 13))

    assert (
        first == "::notice title=forkpoint lint::3 more annotations than GitHub shows here; the log of the step has all"
    )
    assert len(rest) == 13
    assert "::13 more annotations" in next(render_annotations(report_of(*[PLAIN] * 12, *[ADVISORY] * 20)))
    assert "::2 more annotations" in next(render_annotations(report_of(notes=(SourceNote("n.py", "not parsed"),) * 11)))
