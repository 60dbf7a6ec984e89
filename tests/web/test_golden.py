"""The first screen of the six recorded incidents, as pictures. `make accept-pictures` draws them again."""

from itertools import pairwise

from bench.page_browser import PATIENCE_MS
from looping import for_each
from web.golden_pictures import GOLDEN, INCIDENTS, photograph, share_that_differs

TOLERANCE = 0.02
"""Of all blocks. A changed sentence is about 1 %, a picture that is gone or moved is more."""


@for_each("number", INCIDENTS, one_in=3)
def test_an_incident_looks_as_it_was_accepted(browser, incident, tmp_path, number) -> None:
    picture = photograph(browser, incident(number), tmp_path)
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)

    assert share_that_differs(page, (GOLDEN / f"{number}.png").read_bytes(), picture) < TOLERANCE
    page.close()


def test_two_incidents_do_not_look_alike(browser) -> None:
    """The comparison can fail: it is not so tolerant that everything passes."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    pictures = [(GOLDEN / f"{number}.png").read_bytes() for number in INCIDENTS]

    shares = [share_that_differs(page, one, two) for one, two in pairwise(pictures)]

    assert min(shares) > TOLERANCE
    page.close()


def test_golden_pictures_stay_small() -> None:
    assert [path.name for path in GOLDEN.glob("*.png") if path.stat().st_size > 150_000] == []
