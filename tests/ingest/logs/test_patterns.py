"""The table of patterns holds what the scan and the clock rely on."""

import re
import time
from collections.abc import Iterator
from itertools import islice
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from forkpoint.evidence.logs import match_line, patterns, read_log
from forkpoint.evidence.logs.lines import parse_line, split_glued
from forkpoint.evidence.logs.patterns import anchors, scan_literals
from forkpoint.evidence.logs.search import SHORTEST_LITERAL
from ingest.logs.sample_lines import SAMPLES
from looping import for_each, one_in

LONG = 100_000


def test_names_are_unique_and_each_says_something() -> None:
    names = [pattern.name for pattern in patterns()]

    assert len(set(names)) == len(names)
    assert all(pattern.says.endswith(".") and pattern.versions for pattern in patterns())


def test_all_that_is_searched_for_contains_an_anchor_and_every_anchor_is_used() -> None:
    without = [literal for literal in scan_literals() if not any(anchor in literal for anchor in anchors())]

    assert without == []
    assert [anchor for anchor in anchors() if not any(anchor in literal for literal in scan_literals())] == []


def test_what_is_searched_for_is_long_enough_to_hold_most_of_a_word() -> None:
    assert [literal for literal in scan_literals() if len(literal) < SHORTEST_LITERAL] == []


REPEATS = {_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT}


def flat(tree: Any) -> Iterator[tuple[Any, Any]]:
    """All parts of a parsed expression, at every depth."""
    for op, value in tree:
        yield op, value
        if op in REPEATS:
            yield from flat(value[2])
        elif op is _constants.SUBPATTERN:
            yield from flat(value[3])
        elif op is _constants.BRANCH:
            for branch in value[1]:
                yield from flat(branch)
        elif op in {_constants.ASSERT, _constants.ASSERT_NOT}:
            yield from flat(value[1])


@for_each("pattern", patterns(), ids=lambda p: p.name)
def test_every_repetition_is_bounded(pattern: Any) -> None:
    bounds = [int(value[1]) for op, value in flat(_parser.parse(pattern.regex.pattern)) if op in REPEATS]

    assert max(bounds, default=0) <= 2000


@for_each("pattern", patterns(), ids=lambda p: p.name)
def test_no_repetition_stands_in_another(pattern: Any) -> None:
    loops = [value for op, value in flat(_parser.parse(pattern.regex.pattern)) if op in REPEATS and int(value[1]) > 1]

    assert [loop for loop in loops if any(op in REPEATS for op, _ in flat(loop[2]))] == []


def hostile_lines() -> Iterator[str]:
    """Long lines made of what patterns hope for: their literals and the beginnings of their samples, over and over."""
    literals = sorted({literal for pattern in patterns() for literal in pattern.literals})
    samples = sorted({sample.text[:-1] for sample in SAMPLES})
    for seed in [*literals, *samples]:
        yield (seed * (LONG // len(seed) + 1))[:LONG]
        yield seed + "0" * LONG
    for prefix in (
        "[rank1]:",
        "[PG ID 0 PG GUID 0(",
        "(a pid=1, ip=",
        "[1,1]<stdout>:",
        "0: ",
        "\x1b[",
        "pod/",
        "a-1 | ",
    ):
        yield prefix * (LONG // len(prefix))


@one_in(4)
def test_no_line_takes_more_than_linear_time(share: int) -> None:
    # 700 lines of 100 kB, each against all patterns and prefixes. A quadratic one would take 10^10 steps on one line.
    begun = time.process_time()
    for line in islice(hostile_lines(), 0, None, share):
        for text in split_glued(line):
            match_line(parse_line(text).message)
    assert time.process_time() - begun < 300  # CPU of this process alone: other work does not count


def test_a_line_of_a_megabyte_is_read_around_what_it_says() -> None:
    text = "[rank2]:[E1115 01:18:27.1 ProcessGroupNCCL.cpp:689] [Rank 1] Watchdog caught collective operation timeout: "
    work = "WorkNCCL(SeqNum=16, OpType=ALLREDUCE, Timeout(ms)=20000) ran for 20091 milliseconds before timing out."
    line = "x" * 1_000_000 + text + work + "y" * 1_000_000

    (event,) = read_log(line.encode(), "log", None).events

    assert (event.rank, event.seq) == (2, 16)


def test_literals_are_looked_for_before_expressions() -> None:
    assert all(pattern.literals and all(pattern.literals) for pattern in patterns())
    assert all(re.compile(pattern.regex.pattern) for pattern in patterns())
