"""A line that fits a pattern, as an event."""

import re
from dataclasses import replace

from forkpoint.ingest.logs.patterns import Pattern
from forkpoint.ingest.logs.prefixes import Line
from forkpoint.ingest.text import clean
from forkpoint.model.log import Counters, LogEvent, LogKind, Speaker, Work

_NCCL = re.compile(
    r"(?:\[[\d: -]{1,30}[^\]]{0,10}\] )?(?P<host>[^\s:]{1,100}+):(?P<pid>\d{1,9}):\d{1,9} \[(?P<device>-?\d{1,4})\] "
)
_UNKNOWN_NUMEL = 1 << 63
"""Coalesced operations print the number of elements as minus one, unsigned."""
_TYPED = frozenset({
    "seq", "op", "shape", "numel_in", "numel_out", "timeout_ms", "ran_ms", "enqueued", "started", "completed", "rank",
    "local_rank", "host", "pid",
})  # fmt: skip


def base_event(line: Line, file: str, number: int, rank: int | None) -> LogEvent:
    """What the place of a line tells, before its words."""
    return LogEvent(
        kind=LogKind.EXCEPTION,
        file=file,
        line=number,
        rank=rank if line.speaker.rank is None else line.speaker.rank,
        text=clean(line.message),
        speaker=line.speaker,
        time=line.time,
        group=line.group,
        repeated=line.repeated,
    )


def pattern_event(base: LogEvent, pattern: Pattern, match: re.Match[str], message: str) -> LogEvent:
    """The event with what the words of the line say."""
    found = {name: value for name, value in match.groupdict().items() if value}
    nccl = _NCCL.match(message) if "NCCL " in message else None
    extra = [(name, clean(value)) for name, value in found.items() if name not in _TYPED]
    if nccl and "device" not in found:
        extra.append(("device", nccl["device"]))
    rank = None if pattern.of_host else base.rank
    return replace(
        base,
        kind=pattern.kind,
        pattern=pattern.name,
        rank=int(found["rank"]) if "rank" in found else rank,
        seq=int(found["seq"]) if "seq" in found else None,
        speaker=_speaker(base.speaker, {**(nccl.groupdict() if nccl else {}), **found}),
        work=_work(found),
        counters=_counters(found),
        details=tuple(extra),
    )


def _speaker(speaker: Speaker, found: dict[str, str]) -> Speaker:
    """The speaker with what the line says about itself; what a prefix said stays."""
    if not found.keys() & {"host", "pid", "local_rank"}:
        return speaker
    host, pid, local = found.get("host"), found.get("pid"), found.get("local_rank")
    return replace(
        speaker,
        host=clean(host, 100) if host and not speaker.host else speaker.host,
        pid=int(pid) if pid and speaker.pid is None else speaker.pid,
        local_rank=int(local) if local and speaker.local_rank is None else speaker.local_rank,
    )


def _work(found: dict[str, str]) -> Work | None:
    if "op" not in found:
        return None
    return Work(
        op=clean(found["op"]),
        seq=int(found["seq"]) if "seq" in found else None,
        numel_in=_numel(found.get("numel_in")),
        numel_out=_numel(found.get("numel_out")),
        timeout_ms=int(found["timeout_ms"]),
        ran_ms=int(found["ran_ms"]) if "ran_ms" in found else None,
    )


def _numel(text: str | None) -> int | None:
    return None if text is None or int(text) >= _UNKNOWN_NUMEL else int(text)


def _counters(found: dict[str, str]) -> Counters | None:
    if "enqueued" not in found:
        return None
    started = int(found.get("started", "-1"))
    return Counters(int(found["enqueued"]), int(found["completed"]), None if started < 0 else started)
