"""Recorded cases that are like this one, and what they turned out to be."""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.similar import Similar, find_similar
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import answer, fact, names, paragraphs
from forkpoint.agent.wire import Wire
from forkpoint.model.verdict import Cause

_SHOWN = 5


class Arguments(Wire):
    cause: str | None
    """A cause to assume (`host-stall`); null: the verdict's."""


def tool(without: Collection[str] = ()) -> Tool:
    """`without`: numbers of recorded cases that are not told, with all runs of the same fault: who is examined on a case
    must not read its story.
    """
    return Tool(
        name="similar",
        description=(
            "Recorded incidents with the same cause or shape, and what each turned out to be. What happened there is no "
            "evidence of what happened here."
        ),
        arguments=Arguments,
        answer=partial(similar, without=tuple(without)),
    )


def similar(case: Case, asked: Arguments, without: Collection[str]) -> Sequence[Fact]:
    if asked.cause is not None and asked.cause not in set(Cause):
        raise Refused(f"there is no such cause; there are {names(list(Cause))}")
    found = find_similar(case.verdict, without, Cause(asked.cause) if asked.cause is not None else None)
    if not found:
        raise Refused("no recorded case is like this one")
    return answer((f for alike in found[:_SHOWN] for f in _tell(case, alike)), "name a cause")


def _tell(case: Case, alike: Similar) -> Iterator[Fact]:
    told = alike.recorded
    where = f"recorded case {told.number}"
    yield fact(case, where, f"{told.title} ({told.backend}, {told.layout}, {told.world} ranks)")
    yield fact(case, where, f"it was {told.traits.cause}; in common: {'; '.join(alike.shared)}")
    yield from (fact(case, where, piece) for piece in paragraphs(told.story))


TOOL = tool()
