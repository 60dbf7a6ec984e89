"""One number per tensor: what it must see, and what it must not care about."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.replicas.checksums import COLUMNS, ROWS, bytes_of, checksums
from looping import for_each

pytestmark = pytest.mark.torch

BLOCK = COLUMNS * ROWS
SIZES = [1, 2, 63, COLUMNS, 8 * COLUMNS + 5, BLOCK, BLOCK + 1, 3 * BLOCK + 7 * COLUMNS + 11]
"""In 64-bit words: below a row, some rows, blocks with and without a rest."""
DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float64,
    torch.int16,
    torch.uint8,
    torch.bool,
    torch.complex64,
]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """On a busy machine threads that meet after every small sum cost more than they save."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def number(*tensors: torch.Tensor) -> list[int]:
    return checksums(list(tensors)).read()


def random_words(size: int, seed: int = 0) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**62), 2**62, (size,), generator=source)


@for_each("size", SIZES)
def test_every_bit_of_a_place_counts(size: int) -> None:
    words = random_words(size)
    before = number(words)
    for place in {0, size // 2, size - 1}:
        for bit in range(64):
            flipped = words.clone()
            flipped[place] ^= -(2**63) if bit == 63 else 1 << bit
            assert number(flipped) != before, (place, bit)


@given(st.integers(0, 3 * BLOCK + 999), st.integers(0, 3 * BLOCK + 999), st.integers(0, 63))
def test_the_same_bit_flipped_twice_does_not_cancel_out(one: int, two: int, bit: int) -> None:
    words = WORDS.clone()
    words[one] ^= -(2**63) if bit == 63 else 1 << bit
    words[two] ^= -(2**63) if bit == 63 else 1 << bit

    assert (number(words) == BEFORE) == (one == two)


@given(st.integers(0, 3 * BLOCK + 999), st.integers(0, 3 * BLOCK + 999))
def test_swapped_words_are_seen_even_if_only_their_signs_differ(one: int, two: int) -> None:
    words = WORDS.clone()
    words[one] = words[two] ^ -(2**63)
    before = number(words)
    words[[one, two]] = words[[two, one]]

    assert (number(words) == before) == (one == two)


WORDS = random_words(3 * BLOCK + 1000)
BEFORE = number(WORDS)


@for_each("by", [1, 7, COLUMNS, BLOCK])
def test_shifted_data_and_swapped_blocks_are_seen(by: int) -> None:
    shifted = WORDS.roll(by)
    swapped = torch.cat([WORDS[by : 2 * by], WORDS[:by], WORDS[2 * by :]])

    assert len({tuple(number(words)) for words in (WORDS, shifted, swapped)}) == 3


def test_equal_rows_in_another_order_of_values_are_seen() -> None:
    """Columns and rows of constant values: every sum of a row is the same."""
    rows = torch.arange(ROWS).repeat_interleave(COLUMNS)
    columns = torch.arange(COLUMNS).repeat(ROWS)

    assert number(rows) != number(rows.flip(0))
    assert number(columns) != number(columns.flip(0))


@for_each("dtype", DTYPES, ids=str)
def test_any_dtype_has_bits(dtype: torch.dtype) -> None:
    content = torch.arange(1, 16 * 33 + 1, dtype=torch.int64).to(torch.uint8)
    if dtype == torch.bool:
        content = content % 2
    tensor = content.view(dtype)
    other = tensor.clone()
    other.view(torch.uint8)[-1] ^= 1

    assert number(tensor) == number(tensor.clone()) != number(other)


def test_nan_payloads_and_the_sign_of_zero_are_bits_too() -> None:
    nans = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)

    assert number(nans[:1]) != number(nans[1:])
    assert number(torch.tensor([0.0])) != number(torch.tensor([-0.0]))


def test_the_order_of_elements_counts_and_not_that_of_memory() -> None:
    image = torch.randn(4, 3, 8, 8)
    odd = torch.randn(1001)

    assert number(image.to(memory_format=torch.channels_last)) == number(image)
    assert number(image.transpose(0, 1)) == number(image.transpose(0, 1).contiguous())
    assert number(image.transpose(0, 1)) != number(image)
    assert number(odd[1:]) == number(odd[1:].clone())  # in memory between two words
    assert number(torch.complex(odd, odd).conj()) == number(torch.complex(odd, -odd))


def test_a_tensor_counts_by_itself_however_many_are_asked_for() -> None:
    tensors = [torch.randn(n) for n in (0, 1, 5, 20_000, 300_000)] * 2
    alone = [number(tensor)[0] for tensor in tensors]

    assert number(*tensors) == alone
    assert number() == []
    assert number(torch.empty(0)) == number(torch.empty(3, 0)) != number(torch.empty(1))


def test_the_number_of_threads_does_not_matter() -> None:
    threads = torch.get_num_threads()
    try:
        numbers = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            numbers.append(number(WORDS))
    finally:
        torch.set_num_threads(threads)

    assert numbers == [BEFORE] * 3


def test_reading_takes_no_copy_of_plain_tensors() -> None:
    weight = torch.nn.Linear(8, 8).weight

    assert bytes_of(weight).data_ptr() == weight.data_ptr()
    assert bytes_of(torch.tensor(1.0)).numel() == 4
