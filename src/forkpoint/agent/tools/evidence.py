"""What the verdict rests on."""

from collections.abc import Sequence

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import answer, fact
from forkpoint.agent.wire import Wire


class Arguments(Wire):
    id: str | None
    """`E1`, `E2`, ... of the verdict; null: all."""


def evidence(case: Case, asked: Arguments) -> Sequence[Fact]:
    known = {f"E{number}": cited for number, cited in enumerate(case.verdict.evidence, start=1)}
    if not known:
        raise Refused("the verdict cites no evidence; ask progress or log_lines")
    if asked.id is not None and asked.id not in known:
        raise Refused(f"there is no such evidence; there are E1 to E{len(known)}")
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


TOOL = Tool(
    name="evidence",
    description="What the verdict rests on, by id (E1, E2, ...) or all of it: what was read, and from which file and line or entry.",
    arguments=Arguments,
    answer=evidence,
)
