"""How a verdict is marked, what the marks add up to, and how it is told."""

import json
from dataclasses import replace
from pathlib import Path

from forkpoint.lab.fault import CaseFolder, Truth
from forkpoint.lab.record import Mark, Score, Scored, mark, score, score_json, score_text, truth_text
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from verdicts import FOUND, HEALTHY, INCONCLUSIVE

TRUTH = Truth(cause=(Cause.DIVERGENT_PATH, Cause.RANK_LOST), suspects=((2,), (2, 3)), story="Rank 2 leaves.")
NOBODY = replace(TRUTH, cause=(Cause.HEALTHY,), suspects=((),))


def said(cause: Cause, *suspects: int) -> Verdict:
    return replace(FOUND, cause=cause, suspects=suspects)


@for_each(
    ("truth", "verdict", "expected"),
    [
        (TRUTH, said(Cause.DIVERGENT_PATH, 2), Mark.RIGHT),
        (TRUTH, said(Cause.RANK_LOST, 2, 3), Mark.RIGHT),
        (TRUTH, said(Cause.DIVERGENT_PATH), Mark.UNNAMED),
        (TRUTH, said(Cause.DIVERGENT_PATH, 3), Mark.UNNAMED),
        (TRUTH, said(Cause.DIVERGENT_PATH, 1), Mark.ACCUSED),
        (TRUTH, said(Cause.DIVERGENT_PATH, 1, 2), Mark.ACCUSED),
        (TRUTH, said(Cause.HOST_STALL, 2), Mark.WRONG),
        (TRUTH, INCONCLUSIVE, Mark.INCONCLUSIVE),
        (TRUTH, HEALTHY, Mark.WRONG),
        (NOBODY, HEALTHY, Mark.RIGHT),
        (NOBODY, said(Cause.HEALTHY, 0), Mark.ACCUSED),
        (NOBODY, INCONCLUSIVE, Mark.INCONCLUSIVE),
        (replace(NOBODY, cause=(Cause.HEALTHY, Cause.INCONCLUSIVE)), INCONCLUSIVE, Mark.RIGHT),
    ],
)
def test_a_verdict_is_marked_by_the_answers_that_the_truth_allows(truth, verdict, expected) -> None:
    assert mark(truth, verdict) is expected


def test_verdicts_are_counted_by_mark_and_by_cause(tmp_path: Path) -> None:
    case = CaseFolder(tmp_path, "leaves", "a rank leaves", TRUTH)

    result = score([(case, said(Cause.DIVERGENT_PATH, 2)), (case, INCONCLUSIVE), (case, said(Cause.RANK_LOST, 2))])

    assert result.counts == {Mark.RIGHT: 2, Mark.UNNAMED: 0, Mark.INCONCLUSIVE: 1, Mark.WRONG: 0, Mark.ACCUSED: 0}
    assert result.confusion == {
        (Cause.DIVERGENT_PATH, Cause.DIVERGENT_PATH): 1,
        (Cause.DIVERGENT_PATH, Cause.INCONCLUSIVE): 1,
        (Cause.DIVERGENT_PATH, Cause.RANK_LOST): 1,
    }


def scored(right: int, **others: int) -> Score:
    marks = [Mark.RIGHT] * right + [Mark(name) for name, count in others.items() for _ in range(count)]
    return Score(tuple(Scored("leaves", TRUTH, FOUND, m) for m in marks))


def test_nine_of_ten_right_are_good_unless_anybody_innocent_is_accused() -> None:
    assert scored(9, inconclusive=1).is_good
    assert not scored(8, inconclusive=2).is_good
    assert not scored(99, accused=1).is_good


def test_the_table_shows_every_case_and_where_causes_are_mistaken() -> None:
    text = score_text(scored(1, wrong=1))

    assert "leaves  divergent-path or rank-lost  divergent-path  0      wrong" in text
    assert "2 cases: 1 right, 0 unnamed, 0 inconclusive, 1 wrong, 0 accused" in text


def test_the_json_holds_truth_and_verdict_of_every_case() -> None:
    told = json.loads(score_json(scored(1)))

    assert told["schema"] == "forkpoint.lab/1"
    assert told["good"] is True
    assert told["cases"][0]["truth"]["suspects"] == [[2], [2, 3]]
    assert told["confusion"] == [{"truth": "divergent-path", "said": "divergent-path", "cases": 1}]


def test_what_was_really_broken_stands_beside_the_mark() -> None:
    text = truth_text(Scored("leaves", TRUTH, FOUND, Mark.ACCUSED), 200)

    assert text.startswith("really broken: Rank 2 leaves.")
    assert "ranks: 2 or 2-3" in text
    assert "accuses an innocent rank" in text
