"""Lines are found wherever they stand, and only those."""

import random

from forkpoint.evidence.logs.patterns import scan_literals
from forkpoint.evidence.logs.search import LineFinder, _tables, is_hit
from forkpoint.evidence.stacks.read import MARKS

WANTED = (*scan_literals(), *MARKS)


def test_every_literal_is_found_however_it_lies_across_words() -> None:
    finder = LineFinder()
    for literal in WANTED:
        for before in range(9):
            chunk = b"\n\n" + b"x" * before + literal + b"y\nz\n"
            assert finder.hits(chunk) == (4, [2]), literal


def test_a_literal_alone_at_either_end_of_the_text_is_found() -> None:
    finder = LineFinder()

    assert [literal for literal in WANTED if finder.hits(literal) != (0, [0])] == []
    assert finder.hits(b"") == (0, [])


def test_a_literal_across_two_blocks_is_found() -> None:
    finder = LineFinder()
    for before in range(65_520, 65_540):
        assert finder.hits(b"." * before + b"\nWatchdog caught collective operation timeout\n") == (2, [1])


def test_nearly_literals_are_not_hits_and_a_line_is_told_once() -> None:
    rng = random.Random(3)
    finder = LineFinder()
    lines: list[bytes] = []
    for _ in range(20_000):
        line = bytearray(rng.choice(WANTED) + b" " + rng.choice(WANTED))
        for _ in range(rng.randrange(4)):
            line[rng.randrange(len(line))] = rng.choice(b"eTx \t")
        lines.append(bytes(line))
    found = [index for index, line in enumerate(lines) if is_hit(line) or any(mark in line for mark in MARKS)]

    assert 0 < len(found) < len(lines)
    assert finder.hits(b"\n".join(lines)) == (len(lines) - 1, found)


def test_no_literal_repeats_a_word() -> None:
    """Places in which a word is followed by itself are passed over."""
    literals = {literal for known in _tables().literals.values() for _, literal in known}

    assert literals
    assert not [one for one in literals if any(one[i : i + 4] == one[i + 4 : i + 8] for i in range(len(one) - 7))]


def test_a_literal_after_a_page_of_zeros_and_at_the_very_end_is_found() -> None:
    for offset in range(8):
        chunk = b"0" * (40_000 + offset) + b"\n" + b"#0  0x0000"

        assert LineFinder().hits(chunk) == (1, [1])
