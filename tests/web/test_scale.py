"""2,000 ranks x 250 operations, 10,000 x 2,000 in `make sweep`. The limits are stated in bench/page_browser.py's output; here with much room."""

import pytest

from bench.page import flat_capture
from bench.page_browser import measure
from forkpoint.pipeline import diagnose
from forkpoint.report.page import render_html
from looping import is_swept

ROOM = 6
"""Machines that test are slow and busy; `python -m bench.page_browser` measures in peace."""


@pytest.fixture(scope="module")
def large(tmp_path_factory, request):
    ranks, operations = (10_000, 2000) if is_swept(request) else (2000, 250)
    file = tmp_path_factory.mktemp("large") / "report.html"
    file.write_text(render_html(diagnose(flat_capture(ranks, operations), picture=True)), encoding="utf-8")
    return file


def test_thousands_of_ranks_fit_into_a_small_page(open_page, large) -> None:
    open_page(large)

    assert large.stat().st_size < 500_000


@pytest.mark.sweep
def test_ten_thousand_ranks_are_drawn_quickly(open_page, large) -> None:
    """Not in `make test`: other work on the machine would fail it."""
    timing = measure(open_page(large), large)

    assert large.stat().st_size < 500_000
    assert timing.first_picture < ROOM * 1000
    assert sorted(timing.redraws)[len(timing.redraws) // 2] < ROOM * 50


def test_one_rank_in_thousands_is_seen_in_the_heat_map(open_page, large) -> None:
    """Found by its own colour, orange: not washed out among the others."""
    page = open_page(large)
    page.click("#heat summary")
    page.wait_for_selector("#heat-canvas")

    orange = page.evaluate("""() => {
        const canvas = document.getElementById("heat-canvas");
        const { data } = canvas.getContext("2d").getImageData(100, 0, canvas.width - 100, canvas.height);
        let found = 0;
        for (let i = 0; i < data.length; i += 4) if (data[i] === 0xe0 && data[i + 1] === 0x69 && data[i + 2] === 0x1a) found++;
        return found;
    }""")

    assert orange > 150
