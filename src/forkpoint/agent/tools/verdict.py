"""Behind the verdict: hypotheses tried and what each lacks, its evidence, the files that were read; and what is known beyond this case: the
knowledge base, and recorded cases that are similar.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import chain

from forkpoint.agent.case import NoArguments, Tool, Wire, tool
from forkpoint.agent.similar import Similar, find_similar
from forkpoint.brief.case import Case, Fact, QuestionRefused, answer, fact, names, paragraphs
from forkpoint.brief.verdict import tell_claim
from forkpoint.judge.hypotheses.find import find_refused
from forkpoint.knowledge.base import Entry, find, suggest
from forkpoint.model.verdict import Cause, Evidence
from forkpoint.model.world import name_ranks

# ---------------------------------------------------------------------------------------------------------------------
# Hypotheses: those that survive, those that replay rejected, and what would decide.

_RANGES = 4
_SHOWN = 3


@tool(
    "Why this verdict, or why inconclusive: every hypothesis tried, the evidence for and against it, what it lacks, its replay, and what would decide."
)
def why(case: Case, _: NoArguments) -> Sequence[Fact]:
    nothing = "nothing wrong was found, so there is nothing to decide; table shows the last calls"
    return answer(chain(_surviving(case), _refused(case), _decides(case)), "ask evidence by id", nothing)


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


# ---------------------------------------------------------------------------------------------------------------------
# Files.


@tool("Which files were read, set aside (why, and how to use one anyway) or unusable.")
def files(case: Case, _: NoArguments) -> Sequence[Fact]:
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


# ---------------------------------------------------------------------------------------------------------------------
# The evidence of the verdict, the knowledge base, and similar recorded cases.


class EvidenceArguments(Wire):
    id: str | None = None
    """`E1`, ... Default: all."""


@tool("The evidence behind the verdict: what was read, and where.")
def evidence(case: Case, asked: EvidenceArguments) -> Sequence[Fact]:
    known = {f"E{number}": cited for number, cited in enumerate(case.verdict.evidence, start=1)}
    if not known:
        raise QuestionRefused("the verdict cites no evidence; ask progress or log_lines")
    if asked.id is not None and asked.id not in known:
        raise QuestionRefused(f"there is no such evidence; there are E1 to E{len(known)}")
    shown = known if asked.id is None else {asked.id: known[asked.id]}
    facts = (
        fact(
            case,
            f"{e.file} {e.where}",
            f"{number}: {e.says}" if e.rank is None else f"{number}, rank {e.rank}: {e.says}",
        )
        for number, e in shown.items()
    )
    return answer(facts, "ask by id")


_MAX_QUERY = 2000
_MAX_ENTRIES = 3


class ExplainArguments(Wire):
    query: str | None = None
    """`divergent-path`, `xid79`, a log line."""


@tool("General knowledge about a cause, an Xid, an NCCL error, a variable or a log line. Not evidence of this case.")
def explain(case: Case, asked: ExplainArguments) -> Sequence[Fact]:
    query = (asked.query if asked.query is not None else str(case.verdict.cause))[:_MAX_QUERY]
    found = find(query)
    if not found:
        near = suggest(query)
        raise QuestionRefused(f"the knowledge base has nothing on this; similar: {names(near)}")
    facts = (f for entry in found[:_MAX_ENTRIES] for f in _tell_entry(case, entry))
    return answer(facts, "ask by code")


def _tell_entry(case: Case, entry: Entry) -> Iterator[Fact]:
    """General knowledge, not evidence of this case."""
    where = f"knowledge base {entry.query}"
    yield fact(case, where, f"{entry.name}: {entry.title}")
    yield from (fact(case, where, piece) for piece in paragraphs(entry.means))
    yield from (
        fact(case, where, piece)
        for piece in paragraphs(f"What it is not: {entry.not_means}" if entry.not_means else "")
    )
    yield from (fact(case, where, f"{label}: {value}") for label, value in entry.facts)
    yield from (fact(case, where, piece) for step in entry.do for piece in paragraphs(f"To do: {step}"))


_SIMILAR_SHOWN = 5


class SimilarArguments(Wire):
    cause: str | None = None
    """Default: the verdict's."""


def similar_tool(without: Collection[str] = ()) -> Tool:
    """`without`: numbers of recorded cases to leave out, with all runs of the same fault: a model that is tested on a case
    must not read its story.
    """
    return Tool(
        name="similar",
        description=(
            "Recorded incidents with the same cause or shape, and what each turned out to be. Not evidence of this case."
        ),
        arguments=SimilarArguments,
        answer=partial(similar, without=tuple(without)),
    )


def similar(case: Case, asked: SimilarArguments, without: Collection[str]) -> Sequence[Fact]:
    if asked.cause is not None and asked.cause not in set(Cause):
        raise QuestionRefused(f"there is no such cause; there are {names(list(Cause))}")
    found = find_similar(case.verdict, without, Cause(asked.cause) if asked.cause is not None else None)
    if not found:
        raise QuestionRefused("no recorded case resembles this one")
    return answer((f for alike in found[:_SIMILAR_SHOWN] for f in _tell_similar(case, alike)), "name a cause")


def _tell_similar(case: Case, alike: Similar) -> Iterator[Fact]:
    told = alike.recorded
    where = f"recorded case {told.number}"
    yield fact(case, where, f"{told.title} ({told.backend}, {told.layout}, {told.world} ranks)")
    yield fact(case, where, f"it was {told.cause}; in common: {'; '.join(alike.shared)}")
    yield from (fact(case, where, piece) for piece in paragraphs(told.story))


SIMILAR = similar_tool()
