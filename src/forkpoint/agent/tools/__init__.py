"""The questions a model may ask, one file per subject. They read nothing but the case."""

from forkpoint.agent.case import Tool
from forkpoint.agent.tools import around, logs, recorded, source, stacks, verdict

TOOLS: tuple[Tool, ...] = (
    verdict.why,
    verdict.evidence,
    verdict.files,
    recorded.table,
    recorded.progress,
    recorded.waits,
    recorded.channels,
    stacks.threads,
    stacks.stack_diff,
    source.read_source,
    source.callers,
    source.taint,
    around.lint,
    around.history,
    logs.log_lines,
    verdict.explain,
    verdict.SIMILAR,
)
BY_NAME = {tool.name: tool for tool in TOOLS}
