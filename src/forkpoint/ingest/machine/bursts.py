"""Kernel events of one device that belong together, and which of them can be the cause.

A GPU in trouble writes many lines within seconds. 45 and 154 only follow: 45 says that channels were removed, 154 that
another recovery step is needed. 43, 94 and 95 follow where something else came before them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from forkpoint.ingest.machine.kernel_event import KernelEvent, KernelKind
from forkpoint.ingest.stamps import read_stamp

ALWAYS_FOLLOWS = frozenset({45, 154})
FOLLOWS_OTHERS = frozenset({43, 94, 95})
APART = 180
"""Seconds without an event after which another incident begins: NVIDIA's own rule."""
_SOME_YEAR = 962_452_800
"""In the middle of a leap year, which stands in for a year that is not printed."""


@dataclass(frozen=True, slots=True)
class Count:
    kind: KernelKind
    code: int | None
    """Xid or SXid."""
    times: int
    follow_on: bool


@dataclass(frozen=True, slots=True)
class Burst:
    host: str | None
    bus_id: str | None
    first: KernelEvent
    """The first that can be the cause; where all only follow, the first of them."""
    follow_on: bool
    """All only follow: what they follow was not printed, or it was an end from outside (a kill, an exit)."""
    counts: tuple[Count, ...]
    """In the order of their first event."""
    last_line: int
    pids: frozenset[int] = frozenset()
    """Processes that its lines name, as the host numbers them."""

    @property
    def cause(self) -> KernelEvent | None:
        return None if self.follow_on else self.first


def group_bursts(events: Iterable[KernelEvent]) -> tuple[Burst, ...]:
    """Per device of a host and file, parted where nothing came for three minutes, or where the clock went back (a boot).
    What names no device is grouped by kind and process. The order of the input does not matter.
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
    # A corrected PCIe error cost nothing but time; beside anything else it is a hint, not the cause.
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
    """Times that cannot be compared part nothing."""
    one, two = _seconds(before), _seconds(after)
    return one is not None and two is not None and not 0 <= two - one <= APART


def _seconds(when: str | None) -> int | None:
    """On a clock of its own: since boot, or since some year where the text has none."""
    if when is None or when.isdigit():
        return int(when) if when else None
    stamp = read_stamp(when)
    return stamp.seconds(_SOME_YEAR) if stamp else None
