"""The line for programs that scrape logs."""

import json
import re
from dataclasses import replace
from pathlib import Path

from hypothesis import given

import verdicts
from forkpoint.model.verdict import Verdict
from forkpoint.report.escape import escape
from forkpoint.report.verdict_line import PATTERN, render_line

OUTPUTS = Path(__file__).parents[2] / "docs" / "outputs.md"


def unfold(ranks: str) -> set[int]:
    """`0,4-7` as a reader of the line would take it."""
    if ranks == "-":
        return set()
    ends = [(part.split("-")[0], part.split("-")[-1]) for part in ranks.split(",")]
    return {rank for first, last in ends for rank in range(int(first), int(last) + 1)}


def test_the_line_has_cause_action_ranks_seq_confidence_and_the_plain_sentence() -> None:
    facts = "VERDICT v1 cause=divergent-path action=fix-code ranks=0 seq=16 confidence=0.93"
    assert render_line(verdicts.FOUND) == f'{facts} headline="{verdicts.FOUND.headline}"'


def test_what_is_not_known_is_a_dash() -> None:
    assert render_line(verdicts.INCONCLUSIVE).startswith(
        "VERDICT v1 cause=inconclusive action=investigate ranks=- seq=- confidence=0.00 "
    )


def test_ranks_are_compact() -> None:
    assert " ranks=0,4-7 " in render_line(replace(verdicts.FOUND, suspects=(0, 4, 5, 6, 7)))


def test_a_line_stays_short_and_counts_the_ranks_it_leaves_out() -> None:
    line = render_line(replace(verdicts.FOUND, suspects=tuple(range(100_000, 200_000, 2))))

    found = re.search(PATTERN, line)
    assert found
    assert len(line) < 4000
    shown, _, more = found["ranks"].partition("+")
    assert len(unfold(shown)) + int(more) == 50_000


@given(verdicts.VERDICTS)
def test_any_verdict_can_be_read_back_from_its_line(verdict: Verdict) -> None:
    line = render_line(verdict)

    found = re.fullmatch(PATTERN, line)
    assert found
    assert (found["cause"], found["action"]) == (verdict.cause, verdict.action)
    assert unfold(found["ranks"]) == set(verdict.suspects)
    seq = verdict.divergence.seq if verdict.divergence else None
    assert found["seq"] == ("-" if seq is None else str(seq))
    assert abs(float(found["confidence"]) - verdict.confidence) <= 0.005
    assert json.loads(found["headline"]) == escape(verdict.headline)
    assert line.isascii()
    assert line.isprintable()


def test_the_documented_pattern_is_the_tested_one() -> None:
    assert PATTERN in OUTPUTS.read_text()
