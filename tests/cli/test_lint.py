import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from forkpoint.cli import main
from forkpoint.lint.catalogue import all_rules
from looping import for_each
from tests.lint.samples import use_sample_rules

BAD = "import os\nbad = 1\n"


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample rules, a folder and a cache of its own."""
    use_sample_rules(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "job").mkdir()
    monkeypatch.chdir(tmp_path / "job")


def lint(*args: str) -> int:
    return main(["lint", *args])


def test_something_found_exits_1_and_nothing_0(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(BAD)
    assert lint("train.py") == 1
    assert capsys.readouterr().out.splitlines() == [
        "train.py:2:1: bad-word a bad word",
        "    rank == 0",
        "    it is the rank; line 2: [here]",
        "",
        "1 violation in 1 file; read 1 file, 3 lines; --fix repairs 1",
    ]

    Path("train.py").write_text("good = 1\n")
    assert lint("train.py") == 0
    assert capsys.readouterr().out == "no violations in 1 file, 2 lines\n"


@for_each(
    "args",
    [
        [],
        ["-"],
        ["gone.py"],
        [".", "--select", "bad-wrd"],
        [".", "--ignore", "bad-word,nothing"],
        [".", "--json", "--github"],
        [".", "--json", "--diff"],
        [".", "--json", "--sarif", "-"],
        [".", "--sarif", "no/such/folder/x.sarif"],
    ],
)
def test_wrong_usage_exits_2_with_one_line(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(BAD)

    assert lint(*args) == 2

    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize("source", [None, "print 'python 2'\n"])
def test_nothing_that_can_be_read_exits_3(source: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    if source is not None:
        Path("old.py").write_text(source)

    assert lint(".") == 3

    err = capsys.readouterr().err
    assert "no Python source could be read" in err
    assert ("old.py" in err) == (source is not None)


def test_a_misspelt_rule_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    lint(".", "--select", "bad-wrd")

    assert "there is no rule 'bad-wrd'; did you mean 'bad-word'?" in capsys.readouterr().err


def test_options_come_on_top_of_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("bad = 1\ndoubtful = 1\n")
    Path("pyproject.toml").write_text("[tool.forkpoint.lint]\nselect = ['doubtful-word']\nadvisory = true\n")

    def codes(*args: str) -> list[str]:
        lint(".", "--json", *args)
        return [item["rule"] for item in json.loads(capsys.readouterr().out)["violations"]]

    assert codes() == ["doubtful-word"]
    assert codes("--select", "bad-word, doubtful-word") == ["bad-word", "doubtful-word"]
    assert codes("--select", "bad-word", "--select", "doubtful-word", "--ignore", "bad-word") == ["doubtful-word"]

    Path("pyproject.toml").write_text("[tool.forkpoint.lint]\nadvisory = true\n")
    assert codes() == ["bad-word", "doubtful-word"]
    assert codes("--no-advisory") == ["bad-word"]


def test_a_wrong_key_exits_2_and_names_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text("[tool.forkpoint.lint]\nselekt = []\n")

    assert lint(".") == 2

    err = capsys.readouterr().err
    assert "pyproject.toml" in err
    assert "did you mean 'select'?" in err


def test_sarif_goes_to_a_file_beside_the_text_or_in_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(BAD)

    assert lint(".", "--sarif", "out.sarif") == 1
    assert "1 violation" in capsys.readouterr().out
    assert lint(".", "--sarif", "-") == 1

    assert json.loads(capsys.readouterr().out) == json.loads(Path("out.sarif").read_text())


def test_github_prints_annotations(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(BAD)

    assert lint(".", "--github") == 1

    assert capsys.readouterr().out.startswith("::warning file=train.py,line=2,")


def test_diff_changes_nothing_and_git_applies_it(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    Path("train.py").write_text(BAD)

    assert lint(".", "--fix", "--diff") == 1
    diff = capfdbinary.readouterr().out
    assert Path("train.py").read_text() == BAD
    subprocess.run(["git", "apply", "-"], input=diff, check=True)

    assert Path("train.py").read_text() == BAD.replace("bad", "good")


def test_fix_repairs_and_reports_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("bad = 1\n")
    Path("other.py").write_text("doubtful = 1\n")

    assert lint(".", "--fix", "--advisory") == 1

    out, err = capsys.readouterr()
    assert Path("train.py").read_text() == "good = 1\n"
    assert "train.py: 1 repaired" in err
    assert "1 violation (1 advisory)" in out
    assert lint(".", "--fix") == 0


def test_list_names_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("--list") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [rule.code for rule in all_rules()]

    assert lint("--list", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "forkpoint.rules/1"
    assert [rule["code"] for rule in document["rules"]] == [rule.code for rule in all_rules()]


def test_explain_knows_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "bad-word"]) == 0
    assert capsys.readouterr().out.startswith("bad-word: finds bad-word\n")

    assert main(["explain", "--json", "bad-word"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"][0]["code"] == "bad-word"

    assert main(["explain", "bad-wodr"]) == 2
    assert "did you mean bad-word?" in capsys.readouterr().err


def test_a_second_run_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(BAD)

    assert lint(".") == 1
    first = capsys.readouterr().out
    assert lint(".") == 1
    second = capsys.readouterr().out
    assert lint(".", "--no-cache") == 1

    assert first == second == capsys.readouterr().out


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_for_terminals_that_want_it(environment: dict[str, str], coloured: bool) -> None:
    Path("train.py").write_text("x = 1  # forkpoint: ignore[ignore-without-reason]\n")
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    ours, theirs = pty.openpty()

    subprocess.run(
        [sys.executable, "-m", "forkpoint", "lint", "."],
        stdout=theirs,
        env={**kept, "TERM": "xterm-256color", **environment},
        check=False,
    )
    os.close(theirs)

    assert (b"\x1b[" in os.read(ours, 10_000)) == coloured
    os.close(ours)


def test_help_pays_for_no_engine() -> None:
    code = (
        "import sys; from forkpoint.cli import main; main(['lint', '--help']);"
        "heavy = {'numpy', 'rich', 'json', 'ast', 'tomllib', 'forkpoint.source'};"
        "sys.stderr.write(', '.join(heavy & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
