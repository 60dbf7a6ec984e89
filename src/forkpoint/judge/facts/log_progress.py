"""How far each rank came in a group, from its own log: enough to name laggards if nothing was recorded."""

from collections import Counter

from msgspec import Struct

from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import Counters, LogEvent, LogKind, Work

_RATIOS = ((4, 3), (3, 2), (2, 1), (3, 1), (4, 1))
_TELLING = 1000
_MESSAGES = frozenset({"SEND", "RECV", "RECVANYSOURCE", "COALESCED", "UNKNOWN"})


class RankProgress(Struct, frozen=True):
    """What one rank logged about one group."""

    rank: int
    group: str | None
    """Equal on all members of a group; None if the line does not name it, and then nothing may be compared."""
    desc: str | None
    work: Work | None
    """The op in which it timed out; None for a rank that was only told to dump."""
    counters: Counters | None
    event: LogEvent


class LogView(Struct, frozen=True):
    """The group in which most ranks timed out, as far as logs show."""

    group: str | None
    desc: str | None
    seq: int | None
    waiting: tuple[RankProgress, ...]
    """Ranks that timed out at the earliest op that anyone waits in."""
    behind: tuple[RankProgress, ...]
    """Ranks of the same group that had not enqueued that op."""
    other: tuple[RankProgress, ...]
    """Ranks that timed out at the same number of the same group with another op or size."""
    ahead: tuple[RankProgress, ...]
    """Ranks that timed out later in the same group."""
    elsewhere: tuple[RankProgress, ...]
    """Timeouts that cannot be compared: of another group, or of one that the line does not name."""


@fact
def read_progress(incident: Incident) -> tuple[RankProgress, ...]:
    """For each rank and group the last thing it logged; a timeout takes precedence over a mere counter."""
    found: dict[tuple[int, str | None], RankProgress] = {}
    pending: dict[int, list[LogEvent]] = {}
    placed: set[tuple[int, Work | None]] = set()
    for event in incident.capture.events:
        if event.rank is None:
            continue
        if tells_timeout(event):
            pending.setdefault(event.rank, []).append(event)
            if (event.rank, event.work) not in placed:
                _keep(found, event, event)
        elif event.kind is LogKind.GROUP_STATUS and event.rank in pending:
            told = _timeout_of(event, pending[event.rank])
            placed.add((event.rank, told.work))
            _keep(found, told, event)
        elif event.kind is LogKind.DUMP_SIGNAL and event.counters is not None and event.rank not in pending:
            _keep(found, event, event)
    return tuple(found[key] for key in sorted(found, key=lambda k: (k[0], k[1] or "")))


def tells_timeout(event: LogEvent) -> bool:
    """The watchdog's own line, or the exception that repeats it: people often paste only that one."""
    return event.kind in (LogKind.WATCHDOG_TIMEOUT, LogKind.WATCHDOG_DIED) and event.work is not None


def unnamed_timeouts(incident: Incident) -> tuple[LogEvent, ...]:
    """The earliest timeout of each rank whose lines give at most its number within a group (before torch 2.2)."""
    first: dict[int, LogEvent] = {}
    for event in incident.capture.events:
        if event.rank is None and tells_timeout(event):
            number = event.group.group_rank if event.group else -1
            known = first.get(number)
            if known is None or _seq(event) < _seq(known):
                first[number] = event
    named = {e.work for number, e in first.items() if number >= 0}
    return tuple(first[number] for number in sorted(first) if number >= 0 or first[number].work not in named)


def near_ratio(one: int, other: int) -> tuple[int, int] | None:
    """The ratio of two sequence numbers, if it is one of small whole numbers but not 1 : 1.

    Two groups that a step calls a fixed number of times each have such a ratio. Within a thousandth, five such ratios
    cover less than one in fifty of all pairs; numbers below a thousand are too small to tell.
    """
    high, low = max(one, other), min(one, other)
    if low < _TELLING:
        return None
    near = [r for r in _RATIOS if abs(high * r[1] - low * r[0]) * _TELLING < low * r[0]]
    return near[0] if near else None


@fact
def view_logs(incident: Incident) -> LogView | None:
    """None if no log mentions a timeout."""
    progress = read_progress(incident)
    timed_out = [p for p in progress if p.work is not None]
    if not timed_out:
        return None
    counted = [p for p in timed_out if not _is_message(p)] or timed_out
    sizes = Counter((p.group, p.desc) for p in counted)
    group, desc = max(sizes, key=lambda key: (sizes[key], key[0] is not None))
    inside = [p for p in counted if (p.group, p.desc) == (group, desc)]
    seqs = [p.work.seq for p in inside if p.work and p.work.seq is not None]
    seq = min(seqs, default=None)
    first = [p for p in inside if p.work and p.work.seq == seq]
    kinds = Counter(_call(p) for p in first)
    usual = kinds.most_common(1)[0][0]
    named = group is not None and not _is_message(first[0])
    behind = [p for p in progress if named and p.group == group and _is_behind(p, seq)]
    waiting = tuple(p for p in first if _call(p) == usual)
    return LogView(
        group=group,
        desc=desc,
        seq=seq,
        waiting=waiting,
        behind=tuple(behind),
        other=tuple(p for p in first if named and _call(p) != usual),
        ahead=tuple(p for p in inside if named and p not in first),
        elsewhere=tuple(p for p in timed_out if p not in (inside if named else waiting)),
    )


def _seq(event: LogEvent) -> int:
    return event.work.seq if event.work and event.work.seq is not None else -1


def _timeout_of(status: LogEvent, told: list[LogEvent]) -> LogEvent:
    """A rank with several groups may print all its timeouts before their counters."""
    return next((e for e in reversed(told) if e.work and e.work.seq == status.seq), told[-1])


def _keep(found: dict[tuple[int, str | None], RankProgress], told: LogEvent, status: LogEvent) -> None:
    """`status` names the group, and may have counters; the timeout's own line had neither before torch 2.6."""
    assert told.rank is not None  # the caller passes only lines with a rank
    group = status.group
    bare = found.get((told.rank, None))
    if bare is not None and bare.work == told.work:
        del found[told.rank, None]
    progress = RankProgress(
        rank=told.rank,
        group=group.name if group else None,
        desc=group.desc if group else None,
        work=told.work,
        counters=status.counters,
        event=told,
    )
    found[progress.rank, progress.group] = progress


def _is_behind(progress: RankProgress, seq: int | None) -> bool:
    counters = progress.counters
    return progress.work is None and counters is not None and seq is not None and counters.enqueued < seq


def _is_message(progress: RankProgress) -> bool:
    """Messages have a counter of their own on each rank, which compares with nothing."""
    return progress.work is not None and progress.work.op in _MESSAGES


def _call(progress: RankProgress) -> tuple[str, int | None] | None:
    return (progress.work.op, progress.work.numel_in) if progress.work else None
