"""Software or hardware, and who: from numbers alone."""

import pytest

pytest.importorskip("torch")

from forkpoint.replicas.compare import Heading, Row, classify, headings_differ, layouts_differ, odd_ranks
from forkpoint.replicas.report import Kind, What
from looping import for_each

RANKS = (4, 5, 6, 7)


def row(
    now: tuple[int, ...],
    *,
    was: tuple[int | None, ...] = (1, 1, 1, 1),
    differing: int = 1,
    pieces: int = 256,
    what: What = What.PARAMETER,
    name: str = "w",
) -> Row:
    """Ranks with another value than the first differ from it in so many pieces."""
    cut = tuple(
        tuple(0 if value == now[0] or piece >= differing else value for piece in range(pieces)) for value in now
    )
    return Row(what, name, now, (was,), cut)


def kinds(*rows: Row, compared: int = 100, last_equal: int = 10, ranks: tuple[int, ...] = RANKS) -> list[Kind]:
    return [found.kind for found in classify(ranks, rows, compared, last_equal)]


@for_each(
    ("values", "odd"),
    [
        ((1, 1, 2, 1), (6,)),
        ((3, 1, 2, 3), ()),
        ((1, 1, 2, 2), ()),
        ((2, 1, 1, 1, 3), (0, 4)),
        ((1, 2), (0, 1)),
        ((1, 2, 2), (0,)),
    ],
)
def test_a_strict_majority_names_the_odd_rank(values: tuple[int, ...], odd: tuple[int, ...]) -> None:
    ranks = RANKS if len(values) == 4 else tuple(range(len(values)))

    assert odd_ranks(ranks, values) == odd


def test_a_few_words_of_one_rank_are_suspected_hardware() -> None:
    (found,) = classify(RANKS, [row((2, 2, 3, 2))], 100, 10)

    assert (found.kind, found.odd) == (Kind.SUSPECTED_HARDWARE, (6,))
    assert "1 of 256 pieces" in found.why


@for_each(
    "near_miss",
    [
        row((2, 2, 3, 2), differing=256),  # an update that went another way
        row((2, 2, 3, 4)),  # more than one rank
        row((2, 2, 3, 3)),  # no majority
        row((2, 2, 3, 2), what=What.BUFFER),  # may differ by design
        row((2, 2, 3, 2), what=What.SCALAR, name="loss"),
        row((1, 1, 3, 1), what=What.SCALAR, name="temperature"),  # given by the program, constant or not
        Row(What.PARAMETER, "w", (2, 2, 3, 2), ()),  # not looked into
    ],
)
def test_what_a_fault_of_one_device_does_not_do_is_undecided(near_miss: Row) -> None:
    assert kinds(near_miss) == [Kind.UNDECIDED]


def test_a_table_that_nobody_writes_to_has_no_business_to_change() -> None:
    assert kinds(row((1, 1, 3, 1), what=What.BUFFER)) == [Kind.SUSPECTED_HARDWARE]


@for_each(
    "software",
    [
        row((2, 2, 1, 2), differing=256),  # still has what all had before
        row((2, 2, 1, 2)),  # likewise, a sparse update
        row((2, 2, 3, 2), what=What.OPTIMIZER, name="w.step"),
    ],
)
def test_a_stale_tensor_or_another_count_of_updates_is_software(software: Row) -> None:
    assert kinds(software) == [Kind.SOFTWARE]


def test_a_setting_that_differs_explains_the_rest() -> None:
    setting = row((2, 2, 3, 2), what=What.SCALAR, name="optimizer.lr[0.0]", pieces=1)

    assert kinds(row((2, 2, 3, 2)), setting) == [Kind.SOFTWARE] * 2


def test_of_two_ranks_the_one_that_moved_may_be_the_one_that_was_changed() -> None:
    assert kinds(row((1, 3), was=(1, 1)), ranks=(0, 1)) == [Kind.UNDECIDED]
    assert kinds(row((1, 3), was=(1, 1), differing=256), ranks=(0, 1)) == [Kind.SOFTWARE]
    assert kinds(row((2, 3), was=(1, 1)), ranks=(0, 1)) == [Kind.SUSPECTED_HARDWARE]


def test_what_never_was_equal_was_not_made_equal() -> None:
    everywhere = [row((2, 2, 3, 2), differing=256, name=str(n)) for n in range(6)]

    assert kinds(*everywhere, compared=8, last_equal=-1) == [Kind.SOFTWARE] * 6
    assert kinds(*everywhere, compared=8, last_equal=10) == [Kind.UNDECIDED] * 6
    assert kinds(row((2, 2, 3, 2), pieces=1), last_equal=-1) == [Kind.UNDECIDED]


def heading(step: int = 5, updates: int = 5, layout: int = 1) -> Heading:
    return Heading(step, updates, layout, 3, 4, 0)


def test_counters_are_read_before_any_tensor() -> None:
    skipped = headings_differ(RANKS, [heading(), heading(), heading(), heading(updates=4)])
    behind = headings_differ(RANKS, [heading(step=3, updates=3), *[heading()] * 3])

    assert skipped is not None
    assert (skipped.what, skipped.odd, skipped.kind) == (What.UPDATE, (7,), Kind.SOFTWARE)
    assert "rank 7: 4; ranks 4-6: 5" in skipped.why
    assert behind is not None
    assert (behind.what, behind.odd) == (What.STEP, (4,))
    assert headings_differ(RANKS, [heading()] * 4) is None


def test_the_first_tensor_that_is_another_is_named() -> None:
    headings = [heading(), heading(), heading(layout=2), heading()]
    layouts = [(1, 2, 3), (1, 2, 3), (1, 3), (1, 2, 3)]

    found = layouts_differ(RANKS, headings, layouts, ["a", "b", "c"])

    assert (found.what, found.odd, found.kind) == (What.LAYOUT, (6,), Kind.SOFTWARE)
    assert "from tensor 1 on (here it is b)" in found.why
    assert "here there is none" in layouts_differ(RANKS, headings, [(1,), (1,), (), (1,)], []).why
