"""Which rules run, and which of their violations are told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forkpoint.lint import Options, lint
from forkpoint.lint.catalogue import PathIgnore
from forkpoint.lint.rule import Violation
from forkpoint.source import Program, read_program
from forkpoint.source.analysis import Analysis
from looping import for_each
from tests.lint.samples import find_bad, program_of, rule

pytestmark = pytest.mark.usefixtures("sample_rules")


def found(program: Program, options: Options | None = None) -> list[tuple[str, int]]:
    return [(violation.rule, violation.line) for violation in lint(program, options or Options()).violations]


def test_advisory_rules_are_off_until_asked_for(tmp_path: Path) -> None:
    program = program_of(tmp_path, "bad = 1\ndoubtful = 2\n")

    assert found(program) == [("bad-word", 1)]
    assert found(program, Options(advisory=True)) == [("bad-word", 1), ("doubtful-word", 2)]
    assert found(program, Options(select=("doubtful-word",))) == [("doubtful-word", 2)]


def test_an_ignored_rule_does_not_speak_even_when_selected(tmp_path: Path) -> None:
    program = program_of(tmp_path, "bad = 1\n")

    assert found(program, Options(ignore=("bad-word",))) == []
    assert found(program, Options(select=("bad-word",), ignore=("bad-word",))) == []


def test_a_doubtful_violation_of_a_sure_rule_is_advisory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(analysis: Analysis) -> Iterator[Violation]:
        yield Violation("bad-word", next(iter(analysis.program.modules)), 1, 1, 1, "f", "perhaps", advisory=True)

    monkeypatch.setattr("forkpoint.lint.rules.RULES", (rule("bad-word", find),))
    program = program_of(tmp_path, "x = 1\n")

    assert found(program) == []
    assert found(program, Options(advisory=True)) == [("bad-word", 1)]
    assert found(program, Options(select=("bad-word",))) == [("bad-word", 1)]


def test_violations_are_sorted_and_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_backwards_and_twice(analysis: Analysis) -> Iterator[Violation]:
        yield from reversed(list(find_bad(analysis)))
        yield from find_bad(analysis)

    monkeypatch.setattr("forkpoint.lint.rules.RULES", (rule("bad-word", find_backwards_and_twice),))
    program_of(tmp_path, "bad = 1\nbad = 2\n", "b.py")
    program = program_of(tmp_path, "bad = 1\n", "a.py")

    told = [(Path(violation.file).name, violation.line) for violation in lint(program, Options()).violations]
    assert told == [("a.py", 1), ("b.py", 1), ("b.py", 2)]


@for_each(
    ("glob", "told"),
    [
        ("vendored", []),
        ("vendored/", []),
        ("vendored/deep/*", []),
        ("./vendored/*.py", []),
        ("**/job.py", []),
        ("job.py", []),
        ("j*.py", []),
        ("deep", []),
        ("vendor", [1]),
        ("deep/job.py", [1]),
        ("train.py", [1]),
    ],
)
def test_globs_name_files_and_folders(tmp_path: Path, glob: str, told: list[int]) -> None:
    (tmp_path / "vendored" / "deep").mkdir(parents=True)
    program = program_of(tmp_path, "bad = 1\n", "vendored/deep/job.py")

    excluded = Options(exclude=(glob,), root=str(tmp_path))
    quiet = Options(path_ignores=(PathIgnore(glob, ("bad-word",)),), root=str(tmp_path))
    other = Options(path_ignores=(PathIgnore(glob, ("doubtful-word",)),), root=str(tmp_path))

    assert [line for _, line in found(program, excluded)] == told
    assert [line for _, line in found(program, quiet)] == told
    assert [line for _, line in found(program, other)] == [1]


def test_files_that_cannot_be_read_are_notes(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("print 'x'\n")
    program_of(tmp_path, "bad = 1\n")

    report = lint(read_program([str(tmp_path)]), Options())

    assert [Path(note.file).name for note in report.notes] == ["old.py"]
    assert (report.files, len(report.violations)) == (1, 1)


def test_progress_names_each_rule_that_runs(tmp_path: Path) -> None:
    said: list[tuple[int, int, str]] = []

    lint(program_of(tmp_path, ""), Options(advisory=True), lambda *step: said.append(step))

    assert said[1:] == [(0, 2, "bad-word"), (1, 2, "doubtful-word")]


def test_what_is_found_in_tests_is_advisory_unless_the_file_itself_was_given(tmp_path: Path) -> None:
    for place in ("tests/ranks.py", "pkg/test_ranks.py", "third_party/ranks.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("bad = 1\n")
        folder, file = (read_program([str(tmp_path / given)]) for given in (".", place))

        assert found(folder, Options()) == []
        assert [line for _, line in found(file, Options())] == [1]
        assert [line for _, line in found(folder, Options(advisory=True))] == [1]
        (tmp_path / place).unlink()
