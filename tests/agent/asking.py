"""Tools, asked as a test asks them."""

from collections.abc import Sequence
from typing import Any

from forkpoint.agent.case import Tool
from forkpoint.agent.tools import TOOLS
from forkpoint.brief.case import Case, Fact


def tool_named(name: str) -> Tool | None:
    return next((tool for tool in TOOLS if tool.name == name), None)


def ask(case: Case, name: str, **given: Any) -> Sequence[Fact]:
    """Fields that are not given are null."""
    tool = tool_named(name)
    assert tool is not None
    return tool.answer(case, tool.arguments(**{field: given.get(field) for field in tool.arguments.model_fields}))


def says(case: Case, name: str, **given: Any) -> list[str]:
    return [fact.says for fact in ask(case, name, **given)]
