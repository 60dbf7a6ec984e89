"""Numbers and tokens as bytes, and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.model.layout import MAX_ITEMS, U32, Reader, pack_ints, pack_tokens, skip_ints
from looping import for_each

INT64 = st.integers(-(2**63), 2**63 - 1)
TOKENS = st.integers(0, 2**64 - 1)


@given(st.lists(INT64, max_size=40))
def test_any_numbers_come_back(numbers: list[int]) -> None:
    packed = pack_ints(numbers)

    assert Reader(packed).ints().tolist() == numbers
    assert skip_ints(packed, 0) == (len(numbers), len(packed))


@given(st.integers(-(2**40), 2**40), st.integers(-(2**20), 2**20), st.integers(1, 200))
def test_numbers_in_equal_steps_take_one_step(first: int, step: int, count: int) -> None:
    packed = pack_ints([first + step * i for i in range(count)])

    assert len(packed) == 21
    assert Reader(packed).ints().tolist() == [first + step * i for i in range(count)]


@for_each(("step", "width"), [(127, 1), (128, 2), (-129, 2), (40_000, 4), (-(2**31) - 1, 8)])
def test_differences_are_as_narrow_as_they_fit(step: int, width: int) -> None:
    assert pack_ints([0, step, step])[12] == width


@given(st.lists(TOKENS, max_size=40))
def test_any_tokens_come_back(tokens: list[int]) -> None:
    assert Reader(pack_tokens(np.array(tokens, dtype=np.uint64))).tokens().tolist() == tokens


def test_many_distinct_tokens_come_back() -> None:
    tokens = np.arange(70_000, dtype=np.uint64)[::-1].copy()

    assert (Reader(pack_tokens(tokens)).tokens() == tokens).all()


def test_a_few_bytes_that_claim_a_huge_array_are_refused_before_it_is_made() -> None:
    claim = U32.pack(MAX_ITEMS + 1) + b"\0" * 17

    with pytest.raises(ValueError, match="an array of"):
        Reader(claim).ints()
    with pytest.raises(ValueError, match="an array of"):
        skip_ints(claim, 0)
