"""Anyone's text: no crash, no rank that nobody named, and nothing outside the budgets."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.evidence.stacks.read import looks_like_stacks, read_live_stacks
from forkpoint.evidence.stacks.shapes import Shape, find_shape
from forkpoint.evidence.stacks.threads import MAX_FRAMES, MAX_THREADS, RankStacks, cluster
from forkpoint.evidence.text import clean
from ingest.live_stacks.recorded import SAMPLES
from looping import for_each

REAL = [path.read_text() for path in sorted(SAMPLES.iterdir())]
SINGLE = [text for text in REAL if "=== Rank" not in text]
MEGABYTE = 1 << 20
PIECES = sorted({line for text in SINGLE for line in text.splitlines()})
BLOCKS = ["=== Rank 3: http://node-1:48079/handler/dump_traceback? ===", "=== Rank 12: x ===", "=== Rank -1: x ==="]


def check(stacks: tuple[RankStacks, ...], text: str) -> None:
    for one in stacks:
        assert one.rank in {None, 5} or f"=== Rank {one.rank}:" in text
        assert 0 < len(one.threads) <= 3 * MAX_THREADS
        for thread in one.threads:
            assert 1 <= thread.line <= text.count("\n") + 1
            assert len(thread.stack) <= 2 * MAX_FRAMES
            assert all(frame.name == clean(frame.name) for frame in thread.stack)
            assert find_shape(thread.stack) in Shape
    cluster(stacks)


def random_text(chance: random.Random, size: int) -> str:
    return chance.randbytes(size).decode("latin-1")


def shuffled_lines(chance: random.Random, size: int) -> str:
    lines: list[str] = []
    while size > 0:
        line = chance.choice(PIECES if chance.random() < 0.9999 else BLOCKS)
        if chance.random() < 0.1:
            at = chance.randrange(len(line) + 1)
            line = line[:at] + chance.choice(["", "\x00", '"', "(", "9" * 40, "\x1b[31m"]) + line[at + 1 :]
        lines.append(line)
        size -= len(line) + 1
    return "\n".join(lines)


@pytest.mark.parametrize("make", [random_text, shuffled_lines])
def test_ten_megabytes_of_random_or_mutated_text_invent_no_rank(make) -> None:
    chance = random.Random(20261115)
    for _ in range(10):
        text = make(chance, MEGABYTE)
        looks_like_stacks(text[:4096])
        check(read_live_stacks(text, "x", 5), text)


@given(st.sampled_from(REAL), st.integers(0, 20_000), st.integers(0, 20_000), st.text(max_size=5))
def test_a_real_file_with_a_piece_replaced_is_read_as_far_as_it_goes(text, start, length, put) -> None:
    mutated = text[:start] + put + text[start + length :]

    check(read_live_stacks(mutated, "x", 5), mutated)


@given(st.sampled_from(SINGLE), st.integers(0, 20_000))
def test_a_file_cut_anywhere_shows_the_same_main_thread_or_none(text, end) -> None:
    (whole,) = read_live_stacks(text, "x", 5)
    assert whole.main is not None
    for cut in read_live_stacks(text[:end], "x", 5):
        assert cut.main is None or cut.main.line == whole.main.line


@for_each(
    "line",
    [
        "Thread 0x" + "f" * MEGABYTE,
        'Thread 1 (idle): "' + '"' * MEGABYTE,
        "    " + " (" * (MEGABYTE // 2),
        '  File "' + '", line ' * (MEGABYTE // 8),
        "#0  0x1 in " + "(<" * (MEGABYTE // 2),
        "#0  f (a=Frame 0x1" + ", for file Frame 0x1" * (MEGABYTE // 20),
        "=== Rank 1: " + " ===" * (MEGABYTE // 4),
        '  Binary file "' + '", at ' * (MEGABYTE // 6),
    ],
    ids=lambda line: line[:16].strip(),
)
def test_a_line_made_to_cost_time_is_cut_before_it_is_matched(line) -> None:
    header = "Thread 0x1 (most recent call first):\n"

    check(read_live_stacks(f"{header}{line}\n" * 4, "x", 5), f"{header}{line}\n" * 4)
