"""The drawing of the fork, and the image to share: well formed, in ASCII, and nothing of the input can act in it."""

from dataclasses import replace
from xml.etree import ElementTree as ET

from hypothesis import given

import verdicts
from cases import verdict_of
from forkpoint.model.verdict import Verdict
from forkpoint.report.fork_svg import draw_fork, render_share

_SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in ET.fromstring(svg).iter(f"{_SVG}text")]


def test_the_image_has_the_sentence_and_both_sides() -> None:
    image = render_share(verdicts.FOUND)

    told = " ".join(texts(image))
    assert "Rank 0 ran compute() at train.py:15, which ranks 1-3" in told
    assert "ranks 1-3 wait in all_reduce" in told
    assert "rank 0 is in all_reduce at metrics.py:15" in told
    assert 'width="1200" height="630"' in image


def test_only_the_suspect_is_coloured() -> None:
    lanes = draw_fork(verdicts.FOUND)

    assert lanes.count('class="odd"') == 1
    assert 'class="odd-name"' in lanes.partition(">rank 0<")[0][-120:]
    assert 'class="odd' not in draw_fork(replace(verdicts.FOUND, suspects=()))


def test_sides_in_the_same_call_at_the_same_line_say_from_where_they_came() -> None:
    told = texts(render_share(verdict_of("0082", source=True)))

    assert "ranks 0 and 2-3" in told
    assert "wait in all_reduce from train.py:44" in told
    assert "waits in all_reduce from train.py:42" in told


def test_a_rank_that_did_not_come_stops() -> None:
    assert 'class="stop"' in draw_fork(verdict_of("0003"))


def test_a_rank_that_its_stack_shows_stuck_is_at_that_line() -> None:
    assert "is at features.py:22" in texts(render_share(verdict_of("0017")))
    assert "no dump" in texts(render_share(verdict_of("0031")))


def test_without_two_sides_there_is_only_the_sentence() -> None:
    assert draw_fork(verdicts.HEALTHY) == ""
    assert "All 4 ranks agree to the last recorded op." in texts(render_share(verdicts.HEALTHY))


@given(verdicts.VERDICTS)
def test_any_verdict_is_a_well_formed_image_in_which_nothing_acts(verdict: Verdict) -> None:
    image = render_share(verdict)

    assert image.isascii()
    assert {node.tag.removeprefix(_SVG) for node in ET.fromstring(image).iter()} <= {
        "svg", "style", "rect", "text", "g", "path", "circle",
    }  # fmt: skip
