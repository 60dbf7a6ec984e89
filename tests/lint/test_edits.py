"""`--fix` and `--diff`."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from forkpoint.lint import LintReport, Options, lint
from forkpoint.lint.edits import FileChanges, plan_changes, render_diff, write_change
from forkpoint.lint.rule import LineEdit, Violation
from forkpoint.source import Program, read_program
from looping import for_each
from tests.lint.samples import program_of

NOTHING = Violation("bad-word", "", 1, 1, 1, "f", "wrong")


def planned(file: Path, *edits: LineEdit) -> FileChanges:
    return plan_changes(report_on(file, *edits), read_program([str(file)]))


def report_on(file: Path, *edits: LineEdit) -> LintReport:
    return LintReport(tuple(replace(NOTHING, file=str(file), edit=edit) for edit in edits), (), 1, 1)


def after(file: Path, *edits: LineEdit) -> bytes:
    (change,) = planned(file, *edits).changes
    return change.after


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


@pytest.mark.parametrize(
    ("before", "edit", "expected"),
    [
        (b"a\nb\nc\n", LineEdit("t", 2, 2, "B\n"), b"a\nB\nc\n"),
        (b"a\nb\nc\n", LineEdit("t", 2, 2, "B"), b"a\nB\nc\n"),
        (b"a\nb\nc\n", LineEdit("t", 1, 2, "B\nC\nD\n"), b"B\nC\nD\nc\n"),
        (b"a\nb\nc\n", LineEdit("t", 2, 1, "new\n"), b"a\nnew\nb\nc\n"),
        (b"a\nb\nc\n", LineEdit("t", 2, 2, ""), b"a\nc\n"),
        (b"a\nb\n", LineEdit("t", 3, 2, "new\n"), b"a\nb\nnew\n"),
        (b"a\nb", LineEdit("t", 2, 2, "B\n"), b"a\nB"),
        (b"a\nb", LineEdit("t", 3, 2, "new\n"), b"a\nb\nnew"),
        (b"a\r\nb\r\n", LineEdit("t", 1, 1, "A\nB\n"), b"A\r\nB\r\nb\r\n"),
        (b"\xef\xbb\xbfa\nb\n", LineEdit("t", 1, 1, "A\n"), b"\xef\xbb\xbfA\nb\n"),
        (
            b"# coding: latin-1\nb = '\xe9'\nc\n",
            LineEdit("t", 3, 3, "'\xe8'\n"),
            b"# coding: latin-1\nb = '\xe9'\n'\xe8'\n",
        ),
        ("'\x0c\u2028'\nb\n".encode(), LineEdit("t", 2, 2, "B\n"), "'\x0c\u2028'\nB\n".encode()),
    ],
)
def test_only_the_lines_meant_change(file: Path, before: bytes, edit: LineEdit, expected: bytes) -> None:
    file.write_bytes(before)

    assert after(file, edit) == expected


def test_edits_that_touch_the_same_line_are_not_both_made(file: Path) -> None:
    file.write_text("a\nb\nc\nd\n")

    changes = planned(
        file,
        LineEdit("t", 1, 2, "AB\n"),
        LineEdit("t", 2, 3, "BC\n"),
        LineEdit("t", 4, 3, "new\n"),
        LineEdit("t", 4, 4, "D\n"),
    )

    assert [change.after for change in changes.changes] == [b"AB\nc\nnew\nd\n"]
    assert (changes.changes[0].edits, changes.left) == (2, 2)


def test_the_same_edit_of_two_violations_is_made_once(file: Path) -> None:
    file.write_text("a\n")

    changes = planned(file, LineEdit("t", 1, 0, "new\n"), LineEdit("t", 1, 0, "new\n"))

    assert (changes.changes[0].after, changes.left) == (b"new\na\n", 0)


@pytest.mark.parametrize("now", [b"a\nb # new\n", b"\xff", None], ids=["edited", "no text", "gone"])
def test_a_file_that_changed_since_it_was_read_is_left_alone(file: Path, now: bytes | None) -> None:
    file.write_text("a\nb\n")
    program: Program = read_program([str(file)])
    if now is None:
        file.unlink()
    else:
        file.write_bytes(now)

    changes = plan_changes(report_on(file, LineEdit("t", 1, 1, "A\n")), program)

    assert changes.changes == ()
    assert [note.text for note in changes.notes] == ["changed since it was read: not edited"]


def test_writing_keeps_mode_and_links_and_leaves_nothing_behind(tmp_path: Path, file: Path) -> None:
    file.write_text("a\n")
    file.chmod(0o750)
    link = tmp_path / "link.py"
    link.symlink_to(file)

    (change,) = planned(link, LineEdit("t", 1, 1, "A\n")).changes
    write_change(change)

    assert file.read_text() == "A\n"
    assert file.stat().st_mode & 0o777 == 0o750
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.py", "train.py"]


@for_each("name", ["train.py", "a b.py", 'a"b\\.py', "\u00fc.py", "pkg/deep.py"])
@for_each("before", [b"a\nb\nc\n", b"a\r\nb\r\nc\r\n", b"a\nb\nc", b"# coding: latin-1\nb = '\xe9'\nc\n", b"a\rb\rc\n"])
def test_git_applies_the_diff(tmp_path: Path, name: str, before: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(before)

    (change,) = planned(file, LineEdit("t", 3, 3, "C\n")).changes
    subprocess.run(["git", "init", "--quiet", "."], check=True)
    applied = subprocess.run(["git", "apply", "-"], input=render_diff(change), capture_output=True, check=False)

    assert (applied.returncode, applied.stderr) == (0, b"")
    assert file.read_bytes() == change.after != before


SET_LOOP = """\
import torch.distributed as dist

def reduce_all(stats, names):
    for {target} in {names}:
        dist.all_reduce(stats[{target}])

def main(stats):
    reduce_all(stats, set(stats))
"""


def fixed(folder: Path, text: str) -> str:
    program = program_of(folder, text)
    changes = plan_changes(lint(program, Options()), program).changes
    return changes[0].after.decode() if changes else text


def test_a_second_fix_changes_nothing(tmp_path: Path) -> None:
    once = fixed(tmp_path, SET_LOOP.format(target="name", names="names"))

    assert "in sorted(names):" in once
    assert fixed(tmp_path, once) == once


def test_what_may_have_no_order_is_not_sorted(tmp_path: Path) -> None:
    text = SET_LOOP.format(target="param", names="names")

    assert fixed(tmp_path, text) == text
