from hypothesis import given
from hypothesis import strategies as st

from forkpoint.model.world import format_ranks, name_ranks
from looping import for_each


@for_each(
    ("ranks", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0-1"),
        ([*range(7), 8, *range(10, 1024)], "0-6,8,10-1023"),
        ([5, 3, 4, 3], "3-5"),
    ],
)
def test_consecutive_ranks_become_a_range(ranks: list[int], text: str) -> None:
    assert format_ranks(ranks) == text


def test_past_the_limit_ranks_are_only_counted() -> None:
    assert format_ranks(range(0, 1024, 2), max_ranges=3) == "0,2,4,... (512 ranks)"


def test_one_rank_is_named_in_the_singular() -> None:
    assert [name_ranks([2]), name_ranks([2, 3])] == ["rank 2", "ranks 2-3"]


@given(st.sets(st.integers(0, 200)))
def test_no_rank_is_lost_or_added(ranks: set[int]) -> None:
    shown: set[int] = set()
    for part in filter(None, format_ranks(ranks).split(",")):
        first, _, last = part.partition("-")
        shown |= set(range(int(first), int(last or first) + 1))

    assert shown == ranks
