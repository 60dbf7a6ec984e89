"""Problems that others met: recognised by what logs really hold, short, and never a cause."""

import forkpoint
from forkpoint.evidence.logs.patterns import patterns
from forkpoint.knowledge.base import ClueField, KnownProblem, known
from forkpoint.model.log import LogKind
from forkpoint.model.verdict import Cause
from looping import for_each

KNOWN = for_each("one", known(), ids=lambda one: one.entry.code)
HINT = 130
"""Two lines of the report, where words do not break."""


@KNOWN
def test_clues_are_words_that_logs_can_have(one: KnownProblem) -> None:
    pairs = [pair for clue in (*one.shows, *one.unless) for pair in clue.words]
    kinds = {word for place, words in pairs for word in words if place is ClueField.KIND}
    names = {word for place, words in pairs for word in words if place is ClueField.PATTERN}

    assert kinds <= set(LogKind)
    assert names <= {pattern.name for pattern in patterns()}


@KNOWN
def test_the_first_step_fits_into_a_hint(one: KnownProblem) -> None:
    hint = f"maybe known (no proof): {one.entry.do[0]} (forkpoint explain {one.entry.query})"

    assert len(hint) <= HINT


def test_a_hint_is_no_cause_and_a_near_miss_gets_none(tmp_path) -> None:
    log = tmp_path / "job.log"
    line = (
        "n1:1:2 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.0.0.5<33092> with error 12"
    )
    log.write_text(f"{line}, opcode 0, len 0, vendor err 129\n")
    hinted = forkpoint.diagnose(forkpoint.read([str(log)]))
    log.write_text(line.replace("Got completion", "Completion") + "\n[rank0]: step 1\n")
    plain = forkpoint.diagnose(forkpoint.read([str(log)]))

    assert hinted.cause is Cause.INCONCLUSIVE
    assert any("explain one-completion-error" in step for step in hinted.next)
    assert not any("maybe known" in step for step in plain.next)
