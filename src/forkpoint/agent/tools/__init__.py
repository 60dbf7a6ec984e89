"""The questions a model may ask, one file per subject. They read nothing but the case."""

from forkpoint.agent.case import Tool
from forkpoint.agent.tools.around import HISTORY, LINT
from forkpoint.agent.tools.knowledge import EVIDENCE, EXPLAIN, SIMILAR
from forkpoint.agent.tools.logs import LOG_LINES
from forkpoint.agent.tools.reading import FILES, WHY
from forkpoint.agent.tools.recorded import CHANNELS, PROGRESS
from forkpoint.agent.tools.source import CALLERS, READ_SOURCE, TAINT
from forkpoint.agent.tools.stacks import STACK_DIFF
from forkpoint.agent.tools.table import TABLE
from forkpoint.agent.tools.waiting import THREADS, WAITS

TOOLS: tuple[Tool, ...] = (
    WHY,
    EVIDENCE,
    FILES,
    TABLE,
    PROGRESS,
    WAITS,
    CHANNELS,
    THREADS,
    STACK_DIFF,
    READ_SOURCE,
    CALLERS,
    TAINT,
    LINT,
    HISTORY,
    LOG_LINES,
    EXPLAIN,
    SIMILAR,
)
