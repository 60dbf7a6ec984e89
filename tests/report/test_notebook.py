"""A verdict as the value of a notebook's cell."""

from html.parser import HTMLParser

from hypothesis import given

import forkpoint
import verdicts
from cases import CASES
from forkpoint.model.verdict import Verdict
from forkpoint.report.notebook import render_notebook
from looping import for_each
from report.hostile import STRINGS, hostile

ALLOWED = {"div", "p", "strong", "table", "caption", "tr", "th", "td", "ul", "li", "code"}


class Reader(HTMLParser):
    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert attrs == []
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_verdict_shows_itself_through_the_public_door() -> None:
    verdict = forkpoint.diagnose(CASES / "0001" / "capture")

    assert verdict._repr_html_() == render_notebook(verdict)
    assert verdict.headline in Reader(verdict._repr_html_()).text


def test_the_snippet_has_the_sentence_the_cohorts_and_the_sites() -> None:
    text = Reader(render_notebook(verdicts.FOUND)).text

    assert verdicts.FOUND.headline in text
    assert "suspect: rank 0" in text
    assert "1-3waitingall_reduce [71178] Float (scheduled)" in text
    assert "train.py:15 log_progress: is_main_process()" in text


@for_each("string", STRINGS, ids=lambda s: ascii(s[:20]))
def test_a_hostile_string_stays_text(string: str) -> None:
    document = render_notebook(hostile(string))

    assert set(Reader(document).tags) <= ALLOWED
    assert document.isprintable()
    assert len(document) < 20_000


@given(verdicts.VERDICTS)
def test_any_verdict_gives_text_in_plain_tags(verdict: Verdict) -> None:
    assert set(Reader(render_notebook(verdict)).tags) <= ALLOWED


def test_many_cohorts_are_counted() -> None:
    assert "2 more cohorts" in render_notebook(verdicts.crowded(1000))
