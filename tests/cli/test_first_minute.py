"""What a person types first, rightly or wrongly, leads somewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forkpoint.cli import COMMANDS, main
from forkpoint.cli.config import read_settings
from forkpoint.cli.start import MOMENTS
from looping import for_each

DEMO = str(Path(__file__).parents[2] / "src" / "forkpoint" / "demo")


def test_forkpoint_alone_lists_every_command_once_by_moment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0

    out = capsys.readouterr().out
    listed = [line.split()[0] for line in out.partition("Three to begin with")[0].splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(command.name for command in COMMANDS)
    assert [moment for moment, _ in MOMENTS if f"{moment}:\n" in out] == [moment for moment, _ in MOMENTS]
    assert "forkpoint attach" in out
    assert "forkpoint diagnose DIR" in out
    assert "FORKPOINT=1 torchrun" in out


@for_each(
    ("words", "leads"),
    [
        (["diagnos", "x"], "diagnos: no such command; did you mean diagnose?"),
        (["atach"], "did you mean attach?"),
        (["attach", "--pid", "1"], "process ids are given without an option: forkpoint attach 4711"),
        (["attach", "train.py"], "did you mean --job train.py? It chooses a job by its script"),
        (["debug", DEMO], f"{DEMO} is a folder; to read what a job left, run forkpoint diagnose {DEMO}"),
        (["diagnose"], "give what the job left, in any mixture: forkpoint diagnose DIR"),
        (["diagnose", "--dir", DEMO], "paths are given without an option"),
        (["diagnose", DEMO, "--html"], "--html needs a value: --html FILE"),
        (["diagnose", DEMO, "--markdown"], "did you mean --md?"),
        (["report", DEMO], "forkpoint diagnose DIR --html report.html writes a page"),
        (["config"], "[tool.forkpoint] of pyproject.toml"),
        (["init"], "nothing has to be set up"),
        (["ps"], "forkpoint attach finds the job of this machine"),
        (["diagnose", DEMO, "--format", "json"], "unrecognized argument: --format; --json prints JSON"),
        (["diagnose", DEMO, "-o", "report.html"], "--html FILE"),
        (["run", "train.py"], "forkpoint run -- torchrun train.py"),
        (["frobnicate"], "forkpoint alone lists them"),
        ([DEMO], f"{DEMO}: no such command, but a path; did you mean forkpoint diagnose {DEMO}?"),
        (["completion"], "bash|zsh|fish"),
        (["diagnose", DEMO, "--htlm", "x"], "unrecognized argument: --htlm; did you mean --html?"),
        (["diagnose", DEMO, "--json", "out.json"], "--json > out.json"),
        (["diagnose", "--json", "out.json", DEMO], "--json > out.json"),
        (["--colour", "never", "diagnos"], "did you mean diagnose?"),
        (["watch", "no/such/folder"], "no/such/folder: no such file or directory"),
        (["diagnose", "no/such/folder"], "no/such/folder: no such file or directory"),
    ],
)
def test_a_wrong_first_call_says_what_was_meant(
    words: list[str], leads: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert leads in err


@for_each(
    "words",
    [
        ["summarize", "--help"],
        ["-V"],
        ["--version"],
        ["analyze", "--help"],
        ["completion", "bash"],
        ["help"],
        ["help", "diagnose"],
        ["version"],
    ],
)
def test_other_spellings_and_short_forms_are_understood(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert "forkpoint" in capsys.readouterr().out


def test_colours_are_chosen_before_or_after_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.setenv(name, "")
    assert main(["--color", "always", "diagnose", DEMO]) == 1
    assert "\x1b[" in capsys.readouterr().out
    assert main(["diagnose", DEMO, "--colour=never"]) == 1
    assert "\x1b[" not in capsys.readouterr().out


def test_a_log_for_bug_reports_says_what_was_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "debug.log"
    assert main(["diagnose", DEMO, "--quiet", "--log-level", "debug", "--log-file", str(log)]) == 1

    text = log.read_text()
    assert "arguments: ['diagnose'" in text
    assert "nccl_trace_rank_3" in text
    assert "exit code 1" in text
    capsys.readouterr()


def test_a_shell_completes_commands_and_options() -> None:
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": "forkpoint dia", "COMP_POINT": "13", "_ARGCOMPLETE_IFS": "\n"}
    done = subprocess.run(
        ["bash", "-c", f'exec 8>&1 9>/dev/null; "{sys.executable}" -m forkpoint'],
        env={**os.environ, **asked}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.stdout.split() == ["diagnose"]


# ---------------------------------------------------------------------------------------------------------------------
# Files with defaults.


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "home" / ".config").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults_come_from_the_users_file_then_the_projects_then_the_command_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "home" / ".config" / "forkpoint.toml").write_text('width = 50\n[watch]\nnotify = ["slack"]\n')
    assert main(["diagnose", DEMO]) == 1
    narrow = max(map(len, capsys.readouterr().out.splitlines()))
    (project / "pyproject.toml").write_text('[tool.forkpoint]\nwidth = 70\nsource = ["src"]\n')
    assert main(["diagnose", DEMO]) == 1
    wider = max(map(len, capsys.readouterr().out.splitlines()))
    assert main(["diagnose", DEMO, "--width", "100"]) == 1
    widest = max(map(len, capsys.readouterr().out.splitlines()))

    assert narrow <= 50 < wider <= 70 < widest <= 100


@for_each(
    ("table", "says"),
    [
        ('[tool.forkpoint.watch]\nnotify = ["webhook"]', "is allowed only in ~/.config/forkpoint.toml"),
        ("[tool.forkpoint]\nwidht = 70", "is allowed only in ~/.config/forkpoint.toml"),
        (f"[tool.forkpoint]\nsource = {'[' * 20_000}", "cannot be read as TOML"),
        ("[tool.forkpoint]\nwidth = 3", "width: must be a number, at least 40"),
        ('[tool.forkpoint]\nquiet = "yes"', "quiet must be true or false"),
        ("[tool.forkpoint\n", "cannot be read as TOML"),
        ('[tool.forkpoint]\nsource = ["none"]', "does not exist"),
    ],
)
def test_a_file_that_makes_no_sense_or_asks_too_much_is_refused_by_name(
    table: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(table)

    assert main(["diagnose", DEMO]) == 2

    err = capsys.readouterr().err
    assert f"{tmp_path}/pyproject.toml: " in err
    assert says in err


def test_an_unknown_key_of_the_users_file_says_which_was_meant(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "home" / ".config" / "forkpoint.toml").write_text("widht = 50\n")

    assert main(["diagnose", DEMO]) == 2
    assert "widht is not an option; did you mean width?" in capsys.readouterr().err


def test_a_home_that_may_not_be_read_has_no_settings(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `sudo -u`, which keeps $HOME, and in containers with any user id."""

    def refuse(_file: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)

    assert read_settings({"HOME": str(project / "home")}, project) == ()
