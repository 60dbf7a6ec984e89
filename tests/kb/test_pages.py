from pathlib import Path

from docs.build import render_kb
from forkpoint.knowledge.base import EntryKind, entries
from looping import for_each

FOLDER = Path(__file__).parents[2] / "docs" / "kb"


@for_each(("name", "page"), render_kb().items(), ids=lambda value: value if value.endswith("md") else "")
def test_a_page_is_what_the_entries_say(name: str, page: str) -> None:
    assert (FOLDER / name).read_text() == page, "run `make docs`"


def test_there_is_no_page_that_nobody_writes() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(render_kb())


@for_each("kind", EntryKind)
def test_a_page_names_every_entry_of_its_kind(kind: EntryKind) -> None:
    page = render_kb()[f"{kind}.md"]

    assert [entry.code for entry in entries(kind) if entry.code not in page] == []
