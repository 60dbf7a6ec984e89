"""The evidence of the verdict, the knowledge base, and similar recorded cases."""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from forkpoint.agent.case import Tool, Wire
from forkpoint.agent.similar import Similar, find_similar
from forkpoint.brief.case import Case, Fact, QuestionRefused
from forkpoint.brief.naming import answer, fact, names, paragraphs
from forkpoint.knowledge.base import Entry, find, suggest
from forkpoint.model.verdict import Cause


class EvidenceArguments(Wire):
    id: str | None = None
    """`E1`, ... Default: all."""


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


EVIDENCE = Tool(
    name="evidence",
    description="The evidence behind the verdict: what was read, and where.",
    arguments=EvidenceArguments,
    answer=evidence,
)


_MAX_QUERY = 2000
_MAX_ENTRIES = 3


class ExplainArguments(Wire):
    query: str | None = None
    """`divergent-path`, `xid79`, a log line."""


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


EXPLAIN = Tool(
    name="explain",
    description=(
        "General knowledge about a cause, an Xid, an NCCL error, a variable or a log line. Not evidence of this case."
    ),
    arguments=ExplainArguments,
    answer=explain,
)


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
    yield fact(case, where, f"it was {told.traits.cause}; in common: {'; '.join(alike.shared)}")
    yield from (fact(case, where, piece) for piece in paragraphs(told.story))


SIMILAR = similar_tool()
