"""The lab's tables and its JSON (schema forkpoint.lab/1)."""

import json
from collections.abc import Iterable, Sequence
from textwrap import fill

from forkpoint.lab.fault import Fault, Truth
from forkpoint.lab.score import Mark, Score, Scored
from forkpoint.model.ranks import format_ranks
from forkpoint.model.verdict import Cause

SCHEMA = "forkpoint.lab/1"

_WORDS = {
    Mark.RIGHT: "The verdict is right.",
    Mark.UNNAMED: "The cause is right; not all ranks that could be named are.",
    Mark.INCONCLUSIVE: "The verdict does not decide, although it could be known.",
    Mark.WRONG: "The verdict is wrong.",
    Mark.ACCUSED: "The verdict is wrong: it accuses an innocent rank.",
}


def list_text(faults: Sequence[Fault]) -> str:
    rows = [(f.name, f.job.name, f.truth.cause[0], "/".join(f.backends), f.title) for f in faults]
    return _table([("name", "job", "cause", "backends", "what is broken"), *rows])


def list_json(faults: Sequence[Fault]) -> str:
    listed = [
        {
            "name": f.name,
            "job": f.job.name,
            "title": f.title,
            "cause": f.truth.cause[0],
            "ranks": f.job.world,
            "backends": f.backends,
        }
        for f in faults
    ]
    return json.dumps({"schema": SCHEMA, "faults": listed}, indent=2)


def truth_text(case: Scored, width: int) -> str:
    """What was really broken, and whether the verdict says so."""
    truth = case.truth
    allowed = " or ".join(truth.cause)
    who = " or ".join(format_ranks(answer) or "nobody" for answer in truth.suspects)
    told = [f"really broken: {truth.story}", f"truth: {allowed}; ranks: {who}. {_WORDS[case.mark]}"]
    return "\n".join(fill(line, width) for line in told)


def score_text(score: Score) -> str:
    rows = [
        (case.name, " or ".join(case.truth.cause), case.verdict.cause, _who(case), case.mark) for case in score.cases
    ]
    counts = ", ".join(f"{count} {mark}" for mark, count in score.counts.items())
    return "\n".join(
        [
            _table([("fault", "truth", "said", "ranks", "mark"), *rows]),
            "",
            "rows: the best cause of the truth; columns: what was said",
            _confusion(score),
            "",
            f"{len(score.cases)} cases: {counts}",
        ]
    )


def score_json(score: Score) -> str:
    cases = [
        {
            "name": case.name,
            "mark": case.mark,
            "truth": _truth(case.truth),
            "cause": case.verdict.cause,
            "suspects": case.verdict.suspects,
            "confidence": case.verdict.confidence,
            "summary": case.verdict.summary,
        }
        for case in score.cases
    ]
    confusion = [{"truth": t, "said": s, "cases": n} for (t, s), n in sorted(score.confusion.items())]
    told = {"schema": SCHEMA, "cases": cases, "counts": score.counts, "confusion": confusion, "good": score.is_good}
    return json.dumps(told, indent=2)


def _truth(truth: Truth) -> dict[str, object]:
    return {
        "symptom": truth.symptom,
        "cause": truth.cause,
        "suspects": truth.suspects,
        "action": truth.action,
        "story": truth.story,
    }


def _who(case: Scored) -> str:
    return format_ranks(case.verdict.suspects) or "-"


def _confusion(score: Score) -> str:
    counts = score.confusion
    rows = [cause for cause in Cause if any(truth == cause for truth, _ in counts)]
    columns = [cause for cause in Cause if any(said == cause for _, said in counts)]
    lines = [(row, *(str(counts.get((row, column), "")) for column in columns)) for row in rows]
    return _table([("", *columns), *lines])


def _table(rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as they need to be; the last one is not filled up."""
    lines = [tuple(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
