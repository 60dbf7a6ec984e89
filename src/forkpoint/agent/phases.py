"""The workflow, phase by phase: what the engine shows first, and which questions may then be asked.

The order is the engine's, not the model's. Each phase begins with facts that need no question.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools import (
    callers,
    cohorts,
    evidence,
    explain,
    log_lines,
    messages,
    progress,
    read_source,
    slots,
    stack_diff,
    stacks,
    taint,
)
from forkpoint.agent.tools.answers import fact

_SITES = 3
_AROUND_SITE = 6


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    task: str
    """What the model is to do."""
    shows: Callable[[Case], Iterator[Fact]]
    tools: tuple[Tool, ...]


def reading_phases(similar: Tool) -> tuple[Phase, ...]:
    """`similar`: the tool that knows recorded cases, which an examination limits."""
    return (
        Phase("symptom", _SYMPTOM, _show_symptom, (evidence.TOOL, log_lines.TOOL, explain.TOOL, similar)),
        Phase("progress", _PROGRESS, _show_progress, (progress.TOOL, log_lines.TOOL)),
        Phase("cohorts", _COHORTS, _show_cohorts, (cohorts.TOOL, stacks.TOOL)),
        Phase("earliest mismatch", _MISMATCH, _show_mismatch, (slots.TOOL, messages.TOOL, stack_diff.TOOL)),
        Phase("source", _SOURCE, _show_source, (read_source.TOOL, callers.TOOL, taint.TOOL, stack_diff.TOOL)),
    )


_SYMPTOM = "Phase 1, symptom. What failed, and which ranks say so? The rank that prints an error is usually a victim."
_PROGRESS = "Phase 2, progress. How far did each rank come in each group, and who is behind?"
_COHORTS = "Phase 3, cohorts. Which ranks behaved alike, and what did each cohort do last?"
_MISMATCH = (
    "Phase 4, earliest mismatch. Which is the first slot in which ranks differ? It may come before the one in which they "
    "wait. A rank without a record is not a rank that did not call."
)
_SOURCE = "Phase 5, source. Which condition, loop or handler lets only some ranks come to the call, and why can it differ by rank?"


def _show_symptom(case: Case) -> Iterator[Fact]:
    verdict = case.verdict
    yield fact(case, "verdict", f"symptom {verdict.symptom or 'not known'}; {verdict.summary}")
    yield fact(
        case,
        "coverage",
        f"{verdict.coverage.dumps} dumps, {verdict.coverage.logs} logs of {verdict.coverage.ranks} ranks",
    )
    yield from _asked(case, evidence.TOOL, evidence.Arguments(id=None))


def _show_progress(case: Case) -> Iterator[Fact]:
    return _asked(case, progress.TOOL, progress.Arguments(group=None))


def _show_cohorts(case: Case) -> Iterator[Fact]:
    return _asked(case, cohorts.TOOL, cohorts.Arguments(group=None, seq=None))


def _show_mismatch(case: Case) -> Iterator[Fact]:
    found = case.verdict.divergence
    if found is None:
        return iter(())
    seq = next((s for s in (found.seq, found.first_visible_seq, found.hang_seq) if s is not None), None)
    if found.channel is not None:
        source, destination = found.channel
        asked = messages.Arguments(source=source, destination=destination, number=seq, around=None)
        return _asked(case, messages.TOOL, asked)
    if seq is None:
        return iter(())
    return _asked(case, slots.TOOL, slots.Arguments(group=found.group.name, seq=seq, around=1))


def _show_source(case: Case) -> Iterator[Fact]:
    sites = case.verdict.sites[:_SITES]
    told = (fact(case, f"{s.file}:{s.line}", s.why) for s in sites if s.why)
    lines = (
        _asked(case, read_source.TOOL, read_source.Arguments(file=s.file, line=s.line, around=_AROUND_SITE))
        for s in sites
    )
    return chain(told, chain.from_iterable(lines))


def _asked(case: Case, tool: Tool, arguments: object) -> Iterator[Fact]:
    """Where the case holds nothing of it, nothing is shown."""
    try:
        found: Sequence[Fact] = tool.answer(case, arguments)
    except Refused:
        return iter(())
    return iter(found)
