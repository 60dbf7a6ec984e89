"""Events of a log: made from lines that match a pattern, limited in number, returned as one LogReading."""

import re
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from forkpoint.evidence.logs.lines import NCCL_HEADER, ParsedLine
from forkpoint.evidence.logs.patterns import Pattern, patterns
from forkpoint.evidence.logs.speakers import LogSpeakers
from forkpoint.evidence.stacks.threads import RankStacks
from forkpoint.evidence.text import clean
from forkpoint.model.capture import Problem
from forkpoint.model.log import NO_ENDING, QUIET, Counters, Ending, LogEvent, LogKind, PrintedLine, Speaker, Work

_LOUD_EACH = 25
_QUIET_EACH = 16
_LOUD_AT_MOST = 50_000
_QUIET_AT_MOST = 20_000


_UNKNOWN_NUMEL = 1 << 63
"""Coalesced operations print the number of elements as unsigned -1."""
_TYPED = frozenset({
    "seq", "op", "shape", "numel_in", "numel_out", "timeout_ms", "ran_ms", "enqueued", "started", "completed", "rank",
    "local_rank", "host", "pid",
})  # fmt: skip


class LeftOut(Struct, frozen=True):
    """How many events of one kind and rank were dropped."""

    kind: LogKind
    rank: int | None
    count: int


class LogReading(Struct, frozen=True):
    """Everything that one log says."""

    events: tuple[LogEvent, ...]
    """In the order of the log."""
    speakers: frozenset[int]
    """Global ranks that printed lines, according to the lines. A missing rank proves nothing."""
    first_time: str | None
    last_time: str | None
    lines: int
    bytes: int
    introduces: int | None = None
    """The rank as which its program introduces itself: `rank 2/8: rendezvous`."""
    sizes: frozenset[int] = frozenset()
    """Numbers of ranks of the job, as the program prints them."""
    calls_itself: int | None = None
    """The number, perhaps a rank, with which each line of the program begins."""
    ending: Ending = NO_ENDING
    printed: tuple[PrintedLine, ...] = ()
    stacks: tuple[RankStacks, ...] = ()
    """Thread stacks that programs and debuggers printed. Their rank is None if nothing says it."""
    left_out: tuple[LeftOut, ...] = ()
    problems: tuple[Problem, ...] = ()


def base_event(line: ParsedLine, file: str, number: int, rank: int | None) -> LogEvent:
    """The event before its message is parsed: file, line and prefixes."""
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
    """The event with the fields that the pattern found in the message."""
    found = {name: value for name, value in match.groupdict().items() if value}
    nccl = NCCL_HEADER.match(message) if "NCCL " in message else None
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
    """Adds what the message says about its speaker. Prefixes take precedence."""
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


class KeptEvent(Struct, frozen=True):
    event: LogEvent
    sure: bool
    """torch itself printed the rank, not a launcher, whose number may mean something else."""


class _Shelf(Struct):
    first: list[KeptEvent] = field(default_factory=list)
    last: list[KeptEvent] = field(default_factory=list)
    left_out: int = 0


class _Room(Struct):
    each: int
    """How many first and how many last events of a kind and rank are kept."""
    left: int


class Keeper:
    """Keeps the first and the last events of each kind and rank, and counts the others."""

    def __init__(self) -> None:
        self._shelves: dict[tuple[LogKind, int | None, int | None], _Shelf] = {}
        self._loud, self._quiet = _Room(_LOUD_EACH, _LOUD_AT_MOST), _Room(_QUIET_EACH, _QUIET_AT_MOST)
        self._lost = 0

    def add(self, kept: KeptEvent) -> None:
        """Keeps the event, or counts it. A late event replaces the oldest of the last ones."""
        event = kept.event
        room = self._quiet if event.kind in QUIET else self._loud
        key = (event.kind, event.rank, event.speaker.task)
        shelf = self._shelves.get(key)
        if shelf is None:
            if not room.left:
                self._lost += 1
                return
            shelf = self._shelves[key] = _Shelf()
        for part in (shelf.first, shelf.last):
            if len(part) < room.each and room.left:
                room.left -= 1
                part.append(kept)
                return
        shelf.left_out += 1
        if shelf.last:
            del shelf.last[0]
            shelf.last.append(kept)
        else:
            self._lost += 1

    def problem(self) -> str | None:
        """Reports events that were lost because the total limit was reached. Repeats in the middle are not reported."""
        if not self._lost:
            return None
        return f"has too many events: {self._lost} were left out. Give each node's log as a separate file"

    def kept(self) -> list[KeptEvent]:
        """All kept events, in the order of the log."""
        every = [kept for shelf in self._shelves.values() for kept in (*shelf.first, *shelf.last)]
        return sorted(every, key=lambda kept: kept.event.line)

    def left_out(self) -> Iterator[LeftOut]:
        for (kind, rank, _), shelf in self._shelves.items():
            if shelf.left_out:
                yield LeftOut(kind, rank, shelf.left_out)


def settle(kept: KeptEvent, heard: LogSpeakers, rank: int | None) -> LogEvent:
    """The event with its final rank, now that the whole log shows what the launcher's numbers mean. `rank`: the file's."""
    event = kept.event
    speaker = event.speaker
    if heard.roles and not kept.sure and speaker.rank is not None and event.rank == speaker.rank:
        return replace(event, rank=None, speaker=replace(speaker, rank=None, local_rank=speaker.rank))
    offset = heard.node_offset
    if event.rank in (None, rank) and speaker.local_rank is not None and offset is not None and not _of_host(event):
        return replace(event, rank=speaker.local_rank + offset)
    if heard.of_many and speaker.local_rank is not None and speaker.rank is None and event.rank == rank:
        return replace(event, rank=None)
    if event.rank is None and speaker.task is not None and heard.tasks_are_ranks and not _of_host(event):
        return replace(event, rank=speaker.task)
    return event


def _of_host(event: LogEvent) -> bool:
    return any(pattern.name == event.pattern and pattern.of_host for pattern in patterns())
