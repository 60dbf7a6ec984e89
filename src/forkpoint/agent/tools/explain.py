"""What the knowledge base says of a code, a name or a line."""

from collections.abc import Iterator, Sequence

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import answer, fact, names, paragraphs
from forkpoint.agent.wire import Wire
from forkpoint.kb.entry import Entry
from forkpoint.kb.lookup import find, suggest

_MAX_QUERY = 2000
_MAX_ENTRIES = 3


class Arguments(Wire):
    query: str
    """`divergent-path`, `NCCL_TIMEOUT`, `xid79`, or a line of a log."""


def explain(case: Case, asked: Arguments) -> Sequence[Fact]:
    found = find(asked.query[:_MAX_QUERY])
    if not found:
        near = suggest(asked.query[:_MAX_QUERY])
        raise Refused(f"nothing is known of it; near to it: {names(near)}")
    facts = (f for entry in found[:_MAX_ENTRIES] for f in _tell(case, entry))
    return answer(facts, "ask by code")


def _tell(case: Case, entry: Entry) -> Iterator[Fact]:
    """General knowledge: nothing of it is evidence of this case."""
    where = f"knowledge base {entry.query}"
    yield fact(case, where, f"{entry.name}: {entry.title}")
    yield from (fact(case, where, piece) for piece in paragraphs(entry.means))
    yield from (
        fact(case, where, piece)
        for piece in paragraphs(f"What it is not: {entry.not_means}" if entry.not_means else "")
    )
    yield from (fact(case, where, f"{label}: {value}") for label, value in entry.facts)
    yield from (fact(case, where, piece) for step in entry.do for piece in paragraphs(f"To do: {step}"))


TOOL = Tool(
    name="explain",
    description=(
        "What is known in general of a cause, an Xid, an NCCL error, a variable or a log line. Knowledge, not evidence of this "
        "case."
    ),
    arguments=Arguments,
    answer=explain,
)
