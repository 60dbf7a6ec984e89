"""The workflow, phase by phase: what the engine shows first, and which questions may then be asked.

The order is the engine's, not the model's. Each phase begins with facts that need no question.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import fact
from forkpoint.agent.tools.knowledge import EVIDENCE, EXPLAIN, EvidenceArguments
from forkpoint.agent.tools.log_lines import LOG_LINES
from forkpoint.agent.tools.recorded import (
    COHORTS,
    MESSAGES,
    PROGRESS,
    SLOTS,
    CohortsArguments,
    MessagesArguments,
    ProgressArguments,
    SlotsArguments,
)
from forkpoint.agent.tools.source import CALLERS, READ_SOURCE, TAINT, ReadSourceArguments
from forkpoint.agent.tools.stacks import STACK_DIFF, STACKS

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
        Phase("symptom", _SYMPTOM, _show_symptom, (EVIDENCE, LOG_LINES, EXPLAIN, similar)),
        Phase("progress", _PROGRESS, _show_progress, (PROGRESS, LOG_LINES)),
        Phase("cohorts", _COHORTS, _show_cohorts, (COHORTS, STACKS)),
        Phase("earliest mismatch", _MISMATCH, _show_mismatch, (SLOTS, MESSAGES, STACK_DIFF)),
        Phase("source", _SOURCE, _show_source, (READ_SOURCE, CALLERS, TAINT, STACK_DIFF)),
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
    yield from _asked(case, EVIDENCE, EvidenceArguments(id=None))


def _show_progress(case: Case) -> Iterator[Fact]:
    return _asked(case, PROGRESS, ProgressArguments(group=None))


def _show_cohorts(case: Case) -> Iterator[Fact]:
    return _asked(case, COHORTS, CohortsArguments(group=None, seq=None))


def _show_mismatch(case: Case) -> Iterator[Fact]:
    found = case.verdict.divergence
    if found is None:
        return iter(())
    seq = next((s for s in (found.seq, found.first_visible_seq, found.hang_seq) if s is not None), None)
    if found.channel is not None:
        source, destination = found.channel
        asked = MessagesArguments(source=source, destination=destination, number=seq, around=None)
        return _asked(case, MESSAGES, asked)
    if seq is None:
        return iter(())
    return _asked(case, SLOTS, SlotsArguments(group=found.group.name, seq=seq, around=1))


def _show_source(case: Case) -> Iterator[Fact]:
    sites = case.verdict.sites[:_SITES]
    told = (fact(case, f"{s.file}:{s.line}", s.why) for s in sites if s.why)
    lines = (
        _asked(case, READ_SOURCE, ReadSourceArguments(file=s.file, line=s.line, around=_AROUND_SITE)) for s in sites
    )
    return chain(told, chain.from_iterable(lines))


def _asked(case: Case, tool: Tool, arguments: object) -> Iterator[Fact]:
    """Where the case holds nothing of it, nothing is shown."""
    try:
        found: Sequence[Fact] = tool.answer(case, arguments)
    except Refused:
        return iter(())
    return iter(found)
