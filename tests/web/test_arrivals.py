"""The table of who arrives last, in the browser."""

from dataclasses import replace

from forkpoint.model.capture import Capture
from late_jobs import MS, job_with, late_for_good, placed
from pictures.drawn import drawn


def section(open_page, capture: Capture):
    found = drawn(capture)
    return open_page(replace(found.verdict, picture=found.picture)).locator("#arrivals")


def test_a_rank_that_is_always_last_is_marked_with_how_often_and_how_late(open_page) -> None:
    text = section(open_page, late_for_good()).inner_text()

    assert "Marked: a rank that is last more often" in text
    assert "rank 2: 31 times, 20 ms" in text
    assert "train.py:10 step" in text


def test_nothing_is_shown_where_the_dumps_tell_nothing(open_page) -> None:
    few = placed(job_with(lambda rank, _: 20 * MS * (rank == 3), slots=6).capture())

    assert not section(open_page, few).is_visible()
