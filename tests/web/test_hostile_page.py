"""No string of input acts in the page, whatever field it came in."""

from dataclasses import replace

from forkpoint.model.picture import Axis, OpName
from looping import for_each
from report.hostile import STRINGS, hostile


def everywhere(text, recorded):
    """The string in every field of a verdict and of its picture."""
    picture = recorded.picture
    lanes = tuple(
        replace(
            lane, role=text, cells=tuple(replace(c, op=text, letters=text, sizes=text, note=text) for c in lane.cells)
        )
        for lane in picture.lanes
    )
    drawn = replace(
        picture,
        hosts=(text,),
        host=picture.host * 0,
        axes=(Axis(text, len(picture.ranks)),),
        ops=tuple(OpName(text, text[:2]) for _ in picture.ops),
        groups=tuple(replace(group, name=text, desc=text) for group in picture.groups),
        lanes=lanes,
        quotes=tuple(replace(quote, file=text, lines=(text,) * len(quote.lines)) for quote in picture.quotes),
    )
    moments = tuple(
        replace(
            m,
            kind=text,
            clock=text,
            when=text,
            host=text,
            says=text,
            evidence=replace(m.evidence, file=text, where=text),
        )
        for m in recorded.moments
    )
    return replace(hostile(text), picture=drawn, moments=moments)


@for_each("text", STRINGS, one_in=3)
def test_a_hostile_string_in_every_field_is_only_text(open_page, incident, text) -> None:
    page = open_page(everywhere(text, incident("0001")))
    page.click("#heat summary")
    page.fill("#search", "host:x")
    page.focus("#mesh-canvas")
    page.keyboard.press("ArrowRight")
    page.click("#hypotheses .player >> nth=0 >> text=Next")

    elements = page.evaluate("[...new Set([...document.querySelectorAll('*')].map((e) => e.localName))]")
    outside = page.evaluate(
        "[...document.querySelectorAll('a')].filter((a) => !/^(#|data:image\\/svg|vscode:\\/\\/file\\/)/.test(a.getAttribute('href'))).length"
    )

    assert {"img", "iframe", "object", "b"}.isdisjoint(elements)
    assert page.locator("script").count() == 3
    assert outside == 0
    assert page.locator("#hypotheses .player li.now").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_marks_that_turn_text_around_are_spelled_out(open_page, incident) -> None:
    page = open_page(everywhere("\u202eevil\u2066\x1b[2J\x07", incident("0001")))

    shown = page.evaluate("document.body.innerText")

    assert "\\u202eevil\\u2066\\x1b[2J\\x07" in shown
    assert {"\u202e", "\u2066", "\x1b", "\x07"}.isdisjoint(shown)


def test_a_long_string_is_cut_and_unfolds(open_page, incident) -> None:
    page = open_page(replace(incident("0001"), headline="word " * 300))
    before = len(page.inner_text("h1"))

    page.click("h1 .more")

    assert before < 700
    assert len(page.inner_text("h1")) > 1400
