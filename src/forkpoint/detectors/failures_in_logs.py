"""Logs that report a failure but no timeout: what they say, whose they are, and whether a process ended."""

import re

from forkpoint.detectors.cite import verb
from forkpoint.model.incident import Incident
from forkpoint.model.log import FAILURES, LogEvent, LogKind
from forkpoint.model.ranks import name_ranks

_ENDED = frozenset({
    LogKind.AGENT_FAILURE,
    LogKind.AGENT_STOP,
    LogKind.EXITED,
    LogKind.KILLED,
    LogKind.CRASHED,
    LogKind.CANCELLED,
    LogKind.LEFT,
    LogKind.NODE_FAILED,
})  # fmt: skip
"""A launcher, a scheduler or the process itself says that it is over."""
_GONE = frozenset({LogKind.EXCEPTION, LogKind.ASYNC_ERROR, LogKind.OUT_OF_MEMORY, LogKind.CUDA_ERROR})
"""After these a process is expected to end."""
_TOLD = 3
_TEXT = 110
_SPEAKER = re.compile(r"^(?:\[PG [^\]]{0,200}\] |\S{1,200}+ \[-?\d{1,4}\] \S{1,200}+ NCCL WARN )")


def told_failures(incident: Incident) -> tuple[LogEvent, ...]:
    """The first of each kind of line, in the order of the logs."""
    first: dict[str, LogEvent] = {}
    for event in incident.capture.events:
        if event.kind in FAILURES:
            first.setdefault(event.pattern or event.kind, event)
    return tuple(first.values())


def state_failures(incident: Incident) -> str:
    said = [f"{_who(event, incident)}: {_words(event)}" for event in told_failures(incident)[:_TOLD]]
    return "; ".join(["no rank timed out in these logs", *said, *_state_leaving(incident), *_state_running(incident)])


def wanted_after_failures(incident: Incident) -> tuple[str, ...]:
    kinds = {e.kind for e in incident.capture.events}
    wanted = ["the logs and dumps of all ranks: forkpoint diagnose DUMPS LOGS"]
    if LogKind.NETWORK in kinds:
        wanted.append("perfquery -x on both ends of the path, twice   # no node is at fault by one error line")
    if not kinds & _ENDED:
        wanted.append("py-spy dump --pid PID on every rank that still runs; the scheduler's exit codes of the others")
    return tuple(wanted)


def _words(event: LogEvent) -> str:
    """Without what only says who speaks."""
    return _SPEAKER.sub("", event.text)[:_TEXT].rstrip(".")


def _who(event: LogEvent, incident: Incident) -> str:
    alike = {e.rank for e in incident.capture.events if e.kind is event.kind and e.pattern == event.pattern}
    ranks = sorted(rank for rank in alike if rank is not None)
    return name_ranks(ranks) if ranks else event.speaker.host or "a line without a rank"


def _state_leaving(incident: Incident) -> list[str]:
    left = {e.rank for e in incident.capture.events if e.kind is LogKind.LEFT}
    stuck = sorted({e.rank for e in incident.capture.events if e.kind is LogKind.LEAVING and e.rank is not None} - left)
    return [f"{name_ranks(stuck)} began destroy_process_group and did not finish it"] if stuck else []


def _state_running(incident: Incident) -> list[str]:
    """A job counts as running until each process has exited, with a code that is not zero for a failure."""
    kinds = {e.kind for e in incident.capture.events}
    if not kinds & _GONE or kinds & _ENDED:
        return []
    failed = {e.rank for e in incident.capture.events if e.kind in FAILURES}
    others = sorted(incident.heard - failed)
    rest = f"{name_ranks(others)} {verb(others, 'does', 'do')} not mention it; " if others else ""
    ends = "a launcher stops the rest only after one exits with a nonzero code"
    return [f"{rest}no line says that a process ended: {ends}, so the job may still be running"]
