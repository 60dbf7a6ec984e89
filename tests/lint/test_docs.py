"""docs/lint/ is what the rules say."""

from pathlib import Path

from docs.build import render_lint

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "lint"


def test_the_pages_are_those_of_the_rules() -> None:
    assert {path.name: path.read_text() for path in PAGES.glob("*.md")} == render_lint(), "run `make docs`"


def test_the_hook_that_the_page_names_is_the_one_there_is() -> None:
    assert "- id: forkpoint-lint\n" in (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert "- id: forkpoint-lint\n" in render_lint()["index.md"]
