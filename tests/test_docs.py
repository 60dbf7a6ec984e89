"""Documentation says what the program does, its links lead somewhere, and its commands can be typed."""

import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import forkpoint
from docs.build import DOCS, load_scores, render_causes, render_cli, render_example, render_scored
from forkpoint.cli import COMMANDS, build_parser
from forkpoint.judge.detectors import DETECTORS
from forkpoint.model.verdict import Cause
from looping import for_each

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "cases" / "README.md", *DOCS.rglob("*.md")])
BY_PAGE = for_each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
PICTURES = sorted((DOCS / "pictures").iterdir())

PLACEHOLDERS = {"DIR": ".", "path/to/the/code": "src", "PATH...": "src"}
"""Words of command lines that stand for something of the reader's -> what the parser accepts in their place."""
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?!https?:)([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@pytest.fixture(autouse=True)
def _fixed_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


# What is generated is current. docs/kb and docs/lint: tests/kb/test_pages.py, tests/lint/test_docs.py.


def test_the_command_line_page_is_what_help_says() -> None:
    assert (DOCS / "cli.md").read_text() == render_cli(), "run `make docs`"


def test_every_command_has_a_section() -> None:
    page = (DOCS / "cli.md").read_text()

    assert [name for name in (command.name for command in COMMANDS) if f"## forkpoint {name}\n" not in page] == []


def test_the_example_of_the_first_minute_is_what_the_demo_prints() -> None:
    page = (DOCS / "first-minute.md").read_text()

    assert "<!-- forkpoint demo -->\n```text\n" in page
    assert page == render_example(page), "run `make docs`"


def test_the_page_of_causes_is_what_the_detectors_say_of_themselves() -> None:
    page = (DOCS / "causes.md").read_text()

    assert page == render_causes(), "run `make docs`"
    assert [cause for cause in Cause if f"\n## {cause}\n" not in page] == []
    assert page.count("\nDetector: ") == len(DETECTORS)


def test_the_page_of_scores_is_what_truths_and_accepted_verdicts_say() -> None:
    assert (DOCS / "scored.md").read_text() == render_scored(), "run `make docs`"


def test_a_case_that_is_not_right_in_everything_says_why() -> None:
    silent = [
        score.number
        for score in load_scores()
        if (score.found not in score.causes or score.suspects not in ("right", "nobody") or score.site == "no")
        and not score.short_of
    ]

    assert silent == []


def test_every_make_target_explains_itself() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = next(line for line in makefile.splitlines() if line.startswith(".PHONY:")).split()[1:]

    printed = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert [line.split()[0] for line in printed.splitlines()] == phony


def test_the_changelog_names_the_version() -> None:
    assert f"## {forkpoint.__version__}" in (ROOT / "CHANGELOG.md").read_text()


# Links, commands, pictures.


@BY_PAGE
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    assert [target for _, _, target in links(page) if not leads_somewhere(page, target)] == []


@BY_PAGE
def test_command_lines_can_be_parsed(page: Path) -> None:
    wrong: list[str] = []
    for line in command_lines(page):
        try:
            build_parser().parse_args([PLACEHOLDERS.get(word, word) for word in shlex.split(line, comments=True)[1:]])
        except forkpoint.errors.UsageError as error:
            wrong.append(f"{line}: {error}")

    assert wrong == []


@BY_PAGE
def test_pictures_have_words_for_those_who_cannot_see_them(page: Path) -> None:
    assert [target for image, words, target in links(page) if image and len(words) < 20] == []


def test_every_command_is_shown_in_a_page_that_was_written_by_hand() -> None:
    shown = {line.split()[1] for page in PAGES if page.name != "cli.md" for line in command_lines(page)}

    assert {command.name for command in COMMANDS} <= shown


def test_every_page_can_be_reached_from_the_index() -> None:
    found, todo = set[Path](), [DOCS / "index.md"]
    while todo:
        page = todo.pop()
        if page not in found and page.suffix == ".md":
            found.add(page)
            todo += [(page.parent / target.partition("#")[0]).resolve() for _, _, target in links(page)]

    assert sorted(set(DOCS.rglob("*.md")) - found) == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_pictures_are_small_and_in_use() -> None:
    used = {(page.parent / target).resolve() for page in PAGES for image, _, target in links(page) if image}

    assert [picture.name for picture in PICTURES if picture.stat().st_size > 200_000] == []
    assert set(PICTURES) == used


@for_each("picture", [p for p in PICTURES if p.suffix == ".svg"], ids=lambda p: p.name)
def test_drawings_are_titled_and_hold_neither_scripts_nor_references(picture: Path) -> None:
    root = ET.parse(picture).getroot()
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    attributes = {name for element in root.iter() for name in element.attrib}

    assert tags <= {"svg", "title", "desc", "style", "rect", "path", "text"}
    assert {"title", "desc"} <= tags
    assert not [name for name in attributes if name.endswith("href") or name.startswith("on")]
    assert "url(" not in picture.read_text()
    assert root.find("{*}rect") is not None, "a ground of its own: pages may be dark or light"


def test_links_are_resolved_as_github_does() -> None:
    assert [slug(h) for h in ("Where dumps land", "srun (Slurm)", "`forkpoint serve`", "Is it on?")] == [
        "where-dumps-land",
        "srun-slurm",
        "forkpoint-serve",
        "is-it-on",
    ]
    assert not leads_somewhere(DOCS / "index.md", "recorder.md#no-such-heading")


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> list[tuple[str, str, str]]:
    """`!` of a picture, words, target."""
    return _LINK.findall(prose(page))


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    other = page.parent / path if path else page
    return other.exists() and (not anchor or anchor in anchors(other))


def anchors(page: Path) -> set[str]:
    counts = Counter[str]()
    found: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        name = slug(heading)
        found.add(f"{name}-{counts[name]}" if counts[name] else name)
        counts[name] += 1
    return found


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def command_lines(page: Path) -> list[str]:
    """From `forkpoint` on, of every line in a block of shell."""
    blocks = [text for language, text in _FENCE.findall(page.read_text()) if language in ("sh", "bash", "console")]
    found = [re.search(r"(?:^|\| )\s*(forkpoint .*)", line) for block in blocks for line in block.splitlines()]
    return [match[1] for match in found if match]
