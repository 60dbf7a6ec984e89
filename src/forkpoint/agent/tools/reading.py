"""Behind the verdict: hypotheses tried and what each lacks, and which files were read or set aside."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from forkpoint.agent.case import Tool, Wire
from forkpoint.brief.case import Case, Fact, QuestionRefused
from forkpoint.brief.naming import answer, fact, paragraphs
from forkpoint.brief.verdict import tell_claim
from forkpoint.judge.hypotheses.find import find_refused
from forkpoint.model.verdict import Evidence
from forkpoint.model.world import name_ranks

# ---------------------------------------------------------------------------------------------------------------------
# Hypotheses: those that survive, those that replay rejected, and what would decide.

_RANGES = 4
_SHOWN = 3


class WhyArguments(Wire):
    """None."""


def why(case: Case, _: WhyArguments) -> Sequence[Fact]:
    found = answer(chain(_surviving(case), _refused(case), _decides(case)), "ask evidence by id")
    if not found:
        raise QuestionRefused("nothing wrong was found, so there is nothing to decide; table shows the last calls")
    return found


def _surviving(case: Case) -> Iterator[Fact]:
    numbers = {evidence: f"E{n}" for n, evidence in enumerate(case.verdict.evidence, start=1)}
    for number, hypothesis in enumerate(case.verdict.hypotheses, start=1):
        where = f"hypothesis {number}, {hypothesis.likelihood}"
        yield fact(case, where, f"{tell_claim(hypothesis)}: {hypothesis.says}")
        told = [
            ("for it", _cited(hypothesis.supports, numbers)),
            ("against it", _cited(hypothesis.against, numbers)),
            ("it lacks", "; ".join(hypothesis.lacks)),
            ("replay", hypothesis.repair or "no recorded call could be replayed"),
            ("what decides", hypothesis.decides),
        ]
        yield from (fact(case, where, f"{what}: {text}") for what, text in told if text)


def _cited(evidence: Sequence[Evidence], numbers: dict[Evidence, str]) -> str:
    more = f" and {len(evidence) - _SHOWN} more" if len(evidence) > _SHOWN else ""
    return "; ".join(f"{numbers.get(e, '')} {e.says}".strip() for e in evidence[:_SHOWN]) + more


def _refused(case: Case) -> Iterator[Fact]:
    refused = find_refused(case.incident, case.verdict.findings)
    for hypothesis in refused:
        says = f"{tell_claim(hypothesis)}: with its repair the recorded job would still hang, or without it the job would not have stopped"
        yield fact(case, "tried, and rejected by replay", says)


def _decides(case: Case) -> Iterator[Fact]:
    for note in case.verdict.coverage.notes:
        yield fact(case, "note", note)
    for step in case.verdict.next:
        yield from (fact(case, "what would decide", piece) for piece in paragraphs(step))


WHY = Tool(
    name="why",
    description="Why this verdict, or why inconclusive: every hypothesis tried, the evidence for and against it, what it lacks, its replay, and what would decide.",
    arguments=WhyArguments,
    answer=why,
)


# ---------------------------------------------------------------------------------------------------------------------
# Files.


class FilesArguments(Wire):
    """None."""


def files(case: Case, _: FilesArguments) -> Sequence[Fact]:
    return answer(chain(_counts(case), _set_aside(case), _problems(case)), "ask log_lines by file")


def _counts(case: Case) -> Iterator[Fact]:
    capture, timeline = case.incident.capture, case.incident.timeline
    without = [rank for rank in timeline.world if rank not in timeline.traces]
    dumps = f"{len(timeline.traces)} dumps" + (f", none of {name_ranks(without, _RANGES)}" if without else "")
    blind = f", of which {name_ranks(timeline.blind, _RANGES)} end early" if timeline.blind else ""
    logs = sorted({rank for _, rank in capture.logs if rank is not None})
    stacked = {live.rank for live in capture.stacks}
    yield fact(case, "read", f"{dumps}{blind}")
    yield fact(case, "read", f"{len(capture.logs)} logs{f' of {name_ranks(logs, _RANGES)}' if logs else ''}")
    yield fact(case, "read", f"stacks{f' of {name_ranks(stacked, _RANGES)}' if stacked else ': none'}")


def _set_aside(case: Case) -> Iterator[Fact]:
    aside = case.verdict.coverage.set_aside
    for one in aside:
        rank = f"of rank {one.rank}, " if one.rank is not None else ""
        yield fact(case, one.file, f"{rank}set aside: {one.why}")
    if aside:
        yield fact(
            case, "set aside", "to judge one anyway, open the case again with its name in `use` (diagnose --use FILE)"
        )


def _problems(case: Case) -> Iterator[Fact]:
    """The same problem in many files is listed once."""
    found = case.incident.capture.problems
    counts = Counter(problem.text for problem in found)
    for problem in {problem.text: problem for problem in reversed(found)}.values():
        more = f" ({counts[problem.text]} files)" if counts[problem.text] > 1 else ""
        yield fact(case, problem.file, f"{problem.text}{more}")


FILES = Tool(
    name="files",
    description="Which files were read, set aside (why, and how to use one anyway) or unusable.",
    arguments=FilesArguments,
    answer=files,
)
