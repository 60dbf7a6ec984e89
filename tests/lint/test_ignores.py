"""`# forkpoint: ignore[code] reason`."""

from pathlib import Path

import pytest

from forkpoint.lint import LintReport, Options, lint
from forkpoint.lint.catalogue import IGNORE_RULES, AnyRule
from looping import for_each
from tests.lint.samples import program_of

pytestmark = pytest.mark.usefixtures("sample_rules")


def report_on(folder: Path, text: str, *, advisory: bool = False) -> LintReport:
    return lint(program_of(folder, text), Options(advisory=advisory))


def told(report: LintReport) -> list[tuple[str, int]]:
    return [(violation.rule, violation.line) for violation in report.violations]


@for_each(
    "text",
    [
        "bad = 1  # forkpoint: ignore[bad-word] a group of one\n",
        "bad = 1  #forkpoint:ignore[bad-word] a group of one\n",
        "bad = 1  # noqa: E501  # forkpoint: ignore[bad-word] a group of one  # type: ignore\n",
        "bad = 1  # forkpoint: ignore[doubtful-word, bad-word] a group of one\n",
        "# forkpoint: ignore[bad-word] a group of one\nbad = 1\n",
        "# forkpoint: ignore[bad-word] a group of one\n# and more words\nbad = 1\n",
        "if x:\n    # forkpoint: ignore[bad-word] a group of one\n    bad = 1\n",
        "bad = 1\nend = 2  # forkpoint: ignore[bad-word] a group of one\n",
    ],
)
def test_it_ignores_on_the_line_above_it_and_at_the_end(tmp_path: Path, text: str) -> None:
    report = report_on(tmp_path, text, advisory=True)

    assert [item for item in told(report) if item[0] == "bad-word"] == []
    assert report.notes == ()


@for_each(
    "text",
    [
        "bad = 1  # forkpoint: ignore[doubtful-word] another rule\n",
        "# forkpoint: ignore[bad-word] too far away\n\nbad = 1\n",
        "x = 1  # forkpoint: ignore[bad-word] behind other code\nbad = 1\n",
        "bad = 1\n# forkpoint: ignore[bad-word] below\n",
        "bad = '# forkpoint: ignore[bad-word] in a string'\n",
        "bad = 1  # write `# forkpoint: ignore[bad-word] reason` to ignore it\n",
    ],
)
def test_it_ignores_nothing_else(tmp_path: Path, text: str) -> None:
    assert "bad-word" in [code for code, _ in told(report_on(tmp_path, text))]


@for_each("rest", ["", " ", " -", " # noqa: E501", ":"])
def test_an_ignore_without_a_reason_ignores_and_is_a_violation(tmp_path: Path, rest: str) -> None:
    report = report_on(tmp_path, f"bad = 1  # forkpoint: ignore[bad-word]{rest}\n")

    assert told(report) == [("ignore-without-reason", 1)]
    assert report.violations[0].column == 10


def test_a_code_that_no_rule_has_is_a_note_with_the_nearest(tmp_path: Path) -> None:
    report = report_on(tmp_path, "bad = 1  # forkpoint: ignore[bad-wrd] a group of one\n")

    assert told(report) == [("bad-word", 1)]
    assert [note.text for note in report.notes] == [
        "line 1: ignore has no effect: there is no rule 'bad-wrd'; did you mean 'bad-word'?"
    ]


def test_an_ignore_without_a_code_is_a_note(tmp_path: Path) -> None:
    report = report_on(tmp_path, "bad = 1  # forkpoint: ignore\n")

    assert told(report) == [("bad-word", 1)]
    assert [note.text for note in report.notes] == [
        "line 1: ignore without a code has no effect; write ignore[code] reason"
    ]


def test_an_ignore_of_nothing_is_advisory(tmp_path: Path) -> None:
    text = "x = 1  # forkpoint: ignore[bad-word] repaired\n"

    assert told(report_on(tmp_path, text)) == []
    assert told(report_on(tmp_path, text, advisory=True)) == [("unused-ignore", 1)]


def test_an_ignore_of_a_rule_that_did_not_run_is_not_called_unused(tmp_path: Path) -> None:
    program = program_of(tmp_path, "x = 1  # forkpoint: ignore[doubtful-word] who knows\n")

    assert told(lint(program, Options(select=("bad-word", "unused-ignore")))) == []


@pytest.mark.parametrize("rule", IGNORE_RULES, ids=lambda rule: rule.code)
def test_the_examples_of_rules_about_ignores_are_true(tmp_path: Path, rule: AnyRule) -> None:
    options = Options(select=(rule.code,))

    assert [code for code, _ in told(lint(program_of(tmp_path, rule.found_in), options))] == [rule.code]
    assert told(lint(program_of(tmp_path, rule.silent_in), options)) == []


@for_each("text", ["x = 1\x0c  # forkpoint: ignore[bad-word] odd\n", "# forkpoint:", "\ufeff# forkpoint: x"])
def test_odd_text_is_no_crash(tmp_path: Path, text: str) -> None:
    report_on(tmp_path, text, advisory=True)
