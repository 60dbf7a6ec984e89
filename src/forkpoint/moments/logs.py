"""Moments that logs and stacks tell. A line without a time came no later than the next of its file that has one."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from forkpoint.clocks import Clocks
from forkpoint.detectors.cite import cite_event, cite_stack, describe_stack
from forkpoint.model.incident import Incident
from forkpoint.model.log import FAILURES, LogEvent, LogKind
from forkpoint.model.verdict import Evidence, Source
from forkpoint.moments.sighting import Sighting

_TOLD = FAILURES | {
    LogKind.DUMP_SIGNAL,
    LogKind.DUMPED,
    LogKind.DUMP_FAILED,
    LogKind.EXITED,
    LogKind.AGENT_FAILURE,
    LogKind.AGENT_STOP,
    LogKind.CANCELLED,
    LogKind.LEAVING,
    LogKind.LEFT,
    LogKind.RAS,
    LogKind.HOST_STALL,
    LogKind.HARDWARE_HINT,
}
_SAYS = {
    LogKind.DUMPED: "began to write the dump",
    LogKind.LEAVING: "began to destroy its process groups",
    LogKind.LEFT: "destroyed its process group",
    LogKind.GIL_HELD: "could not get the GIL",
}
"""Where every line of a kind says the same, it is said once for all ranks."""
_MAX_SAYS = 160
_PREFIX = re.compile(r"^(?:\[[^\]]{1,160}\]\s{1,4}){1,3}")
_Speaker = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines with a time, by file and rank, in the order of the file."""

    dated: dict[_Speaker, list[LogEvent]]

    def at_or_after(self, file: str, rank: int | None, line: int) -> LogEvent | None:
        lines = self.dated.get((file, rank), [])
        at = bisect_left(lines, line, key=lambda event: event.line)
        return lines[at] if at < len(lines) else None


def find_said(incident: Incident, clocks: Clocks) -> Iterator[Sighting]:
    found: dict[_Speaker, list[LogEvent]] = defaultdict(list)
    for event in sorted(incident.capture.events, key=lambda e: e.line):
        if event.time:
            found[event.file, event.rank].append(event)
    lines = _Lines(found)
    for event in incident.capture.events:
        if event.kind in _TOLD:
            dating = event if event.time else lines.at_or_after(event.file, event.rank, event.line)
            about, says = _tell(event)
            told = (Source.LOG, event.kind.value, about, says)
            yield _sighting(told, cite_event(event), event.line, event.speaker.host, dating, clocks)
    for stack in incident.capture.stacks:
        says = f"was {describe_stack(stack.stack)}"
        dating = lines.at_or_after(stack.file, stack.rank, stack.line)
        yield _sighting((Source.STACK, "stack", says, says), cite_stack(stack), stack.line, None, dating, clocks)


def _sighting(
    told: tuple[Source, str, str, str],
    evidence: Evidence,
    line: int,
    host: str | None,
    dating: LogEvent | None,
    clocks: Clocks,
) -> Sighting:
    instant = clocks.of_event(dating) if dating else None
    return Sighting(
        instant,
        dating.time if dating and instant else None,
        *told[:3],
        host=host,
        says=told[3],
        evidence=evidence,
        line=line,
        bound=instant is not None and dating is not None and dating.line != line,
    )


def _tell(event: LogEvent) -> tuple[str, str]:
    """What makes it the same moment on other ranks, and what it says."""
    if event.kind in _SAYS:
        return "", _SAYS[event.kind]
    if event.kind is LogKind.DUMP_SIGNAL:
        first = "First PG on this rank" in event.text
        return str(first), "asked all ranks for dumps" if first else "was asked for a dump"
    work = event.work
    if work is not None and event.kind is LogKind.WATCHDOG_TIMEOUT:
        ran = f" after {work.ran_ms / 1000:.1f} s" if work.ran_ms is not None else ""
        return f"{work.op} {work.seq}", f"timed out in {work.op} seq {work.seq}{ran}"
    text = _PREFIX.sub("", event.text)
    if event.kind is LogKind.ASYNC_ERROR and event.seq is not None:
        text = f"seq {event.seq} raised {text.rpartition('exception: ')[2]}"
    return text[:_MAX_SAYS], text[:_MAX_SAYS]
