"""One group as a table: a row per seq, ranks that did the same together."""

from collections.abc import Sequence

from forkpoint.agent.case import Tool, Wire
from forkpoint.brief.case import Case, Fact
from forkpoint.brief.table import show_table


class TableArguments(Wire):
    group: str | None = None
    """Default: that of the fork."""
    seq: int | None = None
    """The middle row."""
    around: int | None = None
    """Rows before and after: 3."""


def table(case: Case, asked: TableArguments) -> Sequence[Fact]:
    return show_table(case, asked.group, asked.seq, asked.around)


TABLE = Tool(
    name="table",
    description=(
        "A group's calls around the fork, a row per seq, ranks that did the same together: op, sizes, state, line of the "
        "program, or why there is none; the last row that agrees, the first that differs."
    ),
    arguments=TableArguments,
    answer=table,
)
