"""Documentation says what the program does."""

import re
import subprocess
from pathlib import Path

import pytest

import forkpoint
from docs.build import render_cli, render_readme
from forkpoint.cli import COMMANDS

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _fixed_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def test_the_command_line_page_is_what_help_says() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == render_cli(), "run `make docs`"


def test_every_command_has_a_section() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()

    assert [name for name in (command.name for command in COMMANDS) if f"## forkpoint {name}\n" not in page] == []


def test_the_example_in_the_readme_is_what_the_demo_prints() -> None:
    readme = (ROOT / "README.md").read_text()

    assert "<!-- forkpoint demo -->\n```text\n" in readme
    assert readme == render_readme(readme), "run `make docs`"


def test_every_make_target_explains_itself() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = next(line for line in makefile.splitlines() if line.startswith(".PHONY:")).split()[1:]

    printed = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert [line.split()[0] for line in printed.splitlines()] == phony


def test_the_changelog_names_the_version() -> None:
    assert f"## {forkpoint.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []
