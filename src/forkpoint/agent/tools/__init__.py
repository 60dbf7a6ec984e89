"""The questions a model may ask, one per file. All of them read the case and nothing else."""

from forkpoint.agent.tool import Tool
from forkpoint.agent.tools import (
    callers,
    cohorts,
    evidence,
    explain,
    log_lines,
    messages,
    progress,
    read_source,
    similar,
    slots,
    stack_diff,
    stacks,
    taint,
)

TOOLS: tuple[Tool, ...] = (
    evidence.TOOL,
    progress.TOOL,
    cohorts.TOOL,
    slots.TOOL,
    messages.TOOL,
    stacks.TOOL,
    stack_diff.TOOL,
    read_source.TOOL,
    callers.TOOL,
    taint.TOOL,
    log_lines.TOOL,
    explain.TOOL,
    similar.TOOL,
)


def tool_named(name: str) -> Tool | None:
    return next((tool for tool in TOOLS if tool.name == name), None)
