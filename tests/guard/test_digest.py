"""Digests of two ranks must be comparable wherever they stand, and equal exactly where their calls are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.guard.calls import BLOCKS, TAIL, Digest, Recent, RecentCall
from forkpoint.model.entries import BLOCK

pytestmark = pytest.mark.torch


def recent(tokens: list[int], begin: int = 0, *, complete: bool = True) -> Recent:
    """Calls of one group, from record `begin` on, whose seq is one higher."""
    calls = [RecentCall(begin + i, 0, "0", begin + i + 1, token, 60.0) for i, token in enumerate(tokens)]
    return Recent(tuple(calls), begin + len(tokens) - 1, complete=complete)


def digest_of(tokens: list[int], cuts: list[int]) -> Digest:
    digest = Digest()
    begin = 0
    for cut in [*sorted(cuts), len(tokens)]:
        digest.add(recent(tokens[begin:cut], begin))
        begin = cut
    return digest


@given(st.lists(st.integers(0, 300), max_size=4))
def test_how_often_it_was_looked_at_changes_nothing(cuts) -> None:
    tokens = [(7 * i) % 11 for i in range(300)]
    once, often = digest_of(tokens, []), digest_of(tokens, cuts)
    assert once.groups["0"].tail == often.groups["0"].tail
    assert once.groups["0"].blocks == often.groups["0"].blocks
    assert len(once.groups["0"].tail) == TAIL


def test_one_call_that_differs_shows_in_its_block_and_in_no_other() -> None:
    tokens = [5] * (4 * BLOCK)
    other = tokens.copy()
    other[BLOCK + 10] = 6
    one, two = digest_of(tokens, []).groups["0"].blocks, digest_of(other, []).groups["0"].blocks
    assert one.keys() == two.keys()
    assert [block for block in one if one[block] != two[block]] == [1]


def test_two_calls_in_the_other_order_differ() -> None:
    tokens = list(range(2 * BLOCK))
    swapped = tokens.copy()
    swapped[40], swapped[41] = swapped[41], swapped[40]
    one, two = (digest_of(t, []).groups["0"].blocks for t in (tokens, swapped))
    assert one[0] != two[0]


def test_a_block_of_which_something_was_missed_is_not_told() -> None:
    digest = digest_of([5] * 50, [])
    digest.add(recent([5] * 400, begin=90, complete=False))
    digest.add(recent([5] * 400, begin=490))
    told = digest.groups["0"].blocks
    assert told  # those seen whole
    assert all(block * BLOCK > 490 for block in told)
    assert digest.missed == 1


def test_what_is_kept_is_bounded() -> None:
    digest = digest_of([5] * (BLOCK * (BLOCKS + 10)), [])
    assert len(digest.groups["0"].blocks) == BLOCKS


def test_a_group_that_was_taken_down_and_made_again_starts_anew() -> None:
    """A job that resumes makes its groups again in the same process: same name, same numbers, other calls."""
    digest = digest_of([5] * 20, [])
    again = [RecentCall(20 + i, 3, "0", i + 1, 6, 60.0) for i in range(10)]
    digest.add(Recent(tuple(again), 29, complete=True))
    assert set(digest.groups["0"].tail.values()) == {6}
    assert digest.groups["0"].last_seq == 10
    assert digest.names == {3: "0"}
