"""Kernel logs (dmesg, the journal, kern.log) -> events; events of one device at one time -> bursts; bursts -> remarks."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from forkpoint.evidence.machine.kernel_lines import FORMS, KernelEvent, KernelHeader, read_header
from forkpoint.evidence.machine.kinds import APART, KernelKind
from forkpoint.evidence.machine.places import BUS, normal_bus
from forkpoint.evidence.text import clean, read_stamp, without_escapes
from forkpoint.model.capture import Remark

# ---------------------------------------------------------------------------------------------------------------------
# Kernel messages: dmesg, the journal, kern.log. One event for each line that reports a fault.
#
# A line counts only in the form in which the kernel writes it, after a known prefix or none: text about an Xid is not an
# Xid. The end of a text may be cut off, so a number at its very end is not used.

MAX_EVENTS = 50_000
"""Per file. Of a longer log the end is used: the last events are the ones that matter."""
_LINE_LIMIT = 4000
_HEAD_LINES = 60
_MARKS = tuple(dict.fromkeys(form.mark for form in FORMS))
_BUS = re.compile(BUS)
_OF_A_GPU = re.compile(rf"NVRM: The NVIDIA GPU (?P<bus_id>{BUS})")
_WEEKDAY = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} ")
_SENTENCE_LINES = 4
"""The driver's message that a GPU is gone spans three lines; the first names the GPU."""


def looks_like_kernel_log(head: str) -> bool:
    """Most lines come from the kernel; or all come from a journal or syslog, and some from the kernel."""
    kernel = others = total = 0
    for line in head.split("\n")[:_HEAD_LINES]:
        if not line.strip() or line.startswith("-- "):
            continue
        total += 1
        header = read_header(_plain(line))
        kernel += header.by_kernel or _is_dated(header) or _match(header.message + "\n") is not None
        others += header.by_another
    return kernel > 0 and (2 * kernel > total or kernel + others == total)


def read_kernel_log(text: str, file: str) -> tuple[KernelEvent, ...]:
    """In the order of the file. The two lines about an OOM kill make one event."""
    events: list[KernelEvent] = []
    victims: dict[tuple[str | None, int | None], int] = {}
    named: tuple[int, str | None, str] | None = None
    for number, line, complete in _marked_lines(text):
        header = read_header(_plain(line))
        opening = _OF_A_GPU.match(header.message)
        if opening:
            named = (number, header.host, opening["bus_id"])
        event = _read_event(header, complete, file, number)
        if event is None:
            continue
        if event.kind is KernelKind.GPU_LOST and event.bus_id is None and named:
            near = number - named[0] < _SENTENCE_LINES and named[1] == header.host
            event = replace(event, bus_id=normal_bus(named[2])) if near else event
        if event.kind is KernelKind.OOM_KILL:
            announced = victims.pop((event.host, event.pid), None)
            if announced is not None:
                continue
            if event.device:
                victims[event.host, event.pid] = number
        events.append(event)
    return tuple(events[-MAX_EVENTS:])


def _marked_lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """(number, text, is complete) of each line that contains a mark."""
    starts = {start for mark in _MARKS for start in _lines_with(text, mark)}
    number, before = 1, 0
    for start in sorted(starts)[-2 * MAX_EVENTS :]:
        number += text.count("\n", before, start)
        before = start
        end = text.find("\n", start)
        whole = end >= 0 and end - start <= _LINE_LIMIT
        yield number, text[start : end if whole else start + _LINE_LIMIT], whole


def _lines_with(text: str, mark: str) -> deque[int]:
    """Where these lines begin; only the last ones if there are too many."""
    starts: deque[int] = deque(maxlen=MAX_EVENTS)
    at = text.find(mark)
    while at >= 0:
        starts.append(text.rfind("\n", 0, at) + 1)
        end = text.find("\n", at)
        at = text.find(mark, end) if end >= 0 else -1
    return starts


def _read_event(header: KernelHeader, complete: bool, file: str, number: int) -> KernelEvent | None:
    found = _match(header.message + ("\n" if complete else ""))
    if found is None:
        return None
    kind, match = found
    fields = match.groupdict()
    printed = fields.get("bus_id")
    if kind is KernelKind.NVLINK and (somewhere := _BUS.search(header.message)):
        printed = somewhere[0]
    return KernelEvent(
        kind=kind,
        host=header.host,
        when=header.when,
        bus_id=normal_bus(printed) if printed else None,
        xid=_number(fields.get("xid")),
        sxid=_number(fields.get("sxid")),
        pid=_number(fields.get("pid")),
        process=_name(fields.get("process")),
        device=_name(fields.get("device")),
        text=clean(header.message),
        file=file,
        line=number,
        previous_xid=_number(fields.get("previous_xid")),
    )


def _match(message: str) -> tuple[KernelKind, re.Match[str]] | None:
    for form in FORMS:
        if form.mark in message and (match := form.regex.match(message)):
            return form.kind, match
    return None


def _is_dated(header: KernelHeader) -> bool:
    """`dmesg -T` has the date format of web server logs, in which another bracket follows."""
    return bool(_WEEKDAY.match(header.when or "")) and not header.message.startswith("[")


def _plain(line: str) -> str:
    return without_escapes(line).rstrip("\r")


def _number(printed: str | None) -> int | None:
    return int(printed) if printed else None


def _name(printed: str | None) -> str | None:
    name = clean(printed or "", 200)
    return None if not name or name == "<unknown>" else name


# ---------------------------------------------------------------------------------------------------------------------
# Bursts: kernel events of one device that belong together, and which of them can be the cause.
#
# A faulty GPU logs many lines within seconds. Xids 45 and 154 are always follow-on: 45 says that channels were removed, 154
# that another recovery step is needed. 43, 94 and 95 are follow-on if another Xid came before them.

ALWAYS_FOLLOWS = frozenset({45, 154})
FOLLOWS_OTHERS = frozenset({43, 94, 95})
_SOME_YEAR = 962_452_800
"""The middle of a leap year, used if the year is not printed."""


class Count(Struct, frozen=True):
    kind: KernelKind
    code: int | None
    """Xid or SXid."""
    times: int
    follow_on: bool


class Burst(Struct, frozen=True):
    host: str | None
    bus_id: str | None
    first: KernelEvent
    """The first event that can be the cause; if all are follow-on, the first of them."""
    follow_on: bool
    """All events are follow-on: their cause was not logged, or was outside (a kill, an exit)."""
    counts: tuple[Count, ...]
    """In the order of first occurrence."""
    last_line: int
    pids: frozenset[int] = frozenset()
    """Processes that its lines name, by the host's numbers."""

    @property
    def cause(self) -> KernelEvent | None:
        return None if self.follow_on else self.first


def group_bursts(events: Iterable[KernelEvent]) -> tuple[Burst, ...]:
    """Events grouped by device, host and file; split after three minutes without an event, or if the clock went back (a
    reboot). Events without a device are grouped by kind and process. The order of the input does not matter.
    """
    together: dict[tuple[str, ...], list[KernelEvent]] = defaultdict(list)
    for event in sorted(events, key=lambda event: (event.file, event.line)):
        about = (event.bus_id,) if event.bus_id else (event.kind, str(event.pid), str(event.device))
        together[event.file, event.host or "", *about].append(event)
    bursts = [_burst(run) for of_device in together.values() for run in _runs(of_device)]
    return tuple(sorted(bursts, key=lambda burst: (burst.first.file, burst.first.line)))


def _runs(events: Sequence[KernelEvent]) -> Iterator[list[KernelEvent]]:
    run: list[KernelEvent] = []
    for event in events:
        if run and _is_apart(run[-1].when, event.when):
            yield run
            run = []
        run.append(event)
    yield run


def _burst(run: Sequence[KernelEvent]) -> Burst:
    candidates = [event for event in run if event.xid not in ALWAYS_FOLLOWS]
    # A corrected PCIe error only costs time; next to anything else it is a hint, not the cause.
    serious = [event for event in candidates if not _is_corrected(event)]
    first = next(iter(serious or candidates or run))
    pids = frozenset(event.pid for event in run if event.pid is not None)
    return Burst(first.host, first.bus_id, first, not candidates, _counts(run, first), run[-1].line, pids)


def _counts(run: Sequence[KernelEvent], first: KernelEvent) -> tuple[Count, ...]:
    tally = Counter((event.kind, event.xid or event.sxid) for event in run)
    return tuple(Count(kind, code, times, _follows(kind, code, first)) for (kind, code), times in tally.items())


def _follows(kind: KernelKind, code: int | None, first: KernelEvent) -> bool:
    if kind is not KernelKind.XID:
        return False
    return code in ALWAYS_FOLLOWS or (code in FOLLOWS_OTHERS and first.xid != code)


def _is_corrected(event: KernelEvent) -> bool:
    return event.kind is KernelKind.AER and "Correct" in event.text and "Uncorrect" not in event.text


def _is_apart(before: str | None, after: str | None) -> bool:
    """Times that cannot be compared never split a burst."""
    one, two = _seconds(before), _seconds(after)
    return one is not None and two is not None and not 0 <= two - one <= APART


def _seconds(when: str | None) -> int | None:
    """Seconds since boot or since 1970; in an assumed year if none is printed. Comparable only within a file."""
    if when is None or when.isdigit():
        return int(when) if when else None
    stamp = read_stamp(when)
    return stamp.seconds(_SOME_YEAR) if stamp else None


# ---------------------------------------------------------------------------------------------------------------------
# Bursts -> remarks.


def kernel_remarks(events: Iterable[KernelEvent]) -> tuple[Remark, ...]:
    """Bursts of follow-on messages are never causes, and say so."""
    return tuple(_of_burst(burst) for burst in group_bursts(events))


def _of_burst(burst: Burst) -> Remark:
    first = burst.first
    times = sum(count.times for count in burst.counts)
    more = f" ({times} messages)" if times > 1 else ""
    follows = " (it only follows another fault)" if burst.cause is None else ""
    code = first.explained_by
    hint = f" (forkpoint explain {code})" if code is not None else ""
    return Remark(
        file=first.file,
        line=first.line,
        host=burst.host,
        bus_id=burst.bus_id,
        says=f"{first.text}{more}{follows}{hint}",
        kind=first.kind,
        when=first.when,
        xid=None if burst.cause is None or code in FOLLOWS_OTHERS else code,
        pids=burst.pids,
    )
