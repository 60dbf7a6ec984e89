"""How far each rank came in a group, from its own log: enough to name laggards where nothing was recorded."""

from collections import Counter
from dataclasses import dataclass

from forkpoint.model.incident import Incident
from forkpoint.model.log import Counters, LogEvent, LogKind, Work

_MESSAGES = frozenset({"SEND", "RECV", "RECVANYSOURCE", "COALESCED", "UNKNOWN"})


@dataclass(frozen=True, slots=True)
class RankProgress:
    """One rank's own words about one group."""

    rank: int
    group: str | None
    """What is equal on all its members; None where the line does not say, and then nothing may be compared."""
    desc: str | None
    work: Work | None
    """The op in which it timed out; None for a rank that only was told to dump."""
    counters: Counters | None
    event: LogEvent


@dataclass(frozen=True, slots=True)
class LogView:
    """The group in which most ranks timed out, as far as logs tell."""

    group: str | None
    desc: str | None
    seq: int | None
    waiting: tuple[RankProgress, ...]
    """Ranks that timed out at the earliest op that anyone waits in."""
    behind: tuple[RankProgress, ...]
    """Ranks of the same group that had not enqueued that op."""
    other: tuple[RankProgress, ...]
    """Ranks that timed out in the same place of the same group with another op or size."""
    ahead: tuple[RankProgress, ...]
    """Ranks that timed out later in the same group."""
    elsewhere: tuple[RankProgress, ...]
    """Timeouts that cannot be compared: of another group, or of one that the line does not name."""


def read_progress(incident: Incident) -> tuple[RankProgress, ...]:
    """Per rank and group the last it said, a timeout before a mere counter."""
    found: dict[tuple[int, str | None], RankProgress] = {}
    pending: dict[int, LogEvent] = {}
    for event in incident.capture.events:
        if event.rank is None:
            continue
        if event.kind is LogKind.WATCHDOG_TIMEOUT and event.work is not None:
            pending[event.rank] = event
            _keep(found, _progress(event, event))
        elif event.kind is LogKind.GROUP_STATUS and event.rank in pending:
            found.pop((event.rank, None), None)
            _keep(found, _progress(pending[event.rank], event))
        elif event.kind is LogKind.DUMP_SIGNAL and event.counters is not None and event.rank not in pending:
            _keep(found, _progress(event, event))
    return tuple(found[key] for key in sorted(found, key=lambda k: (k[0], k[1] or "")))


def view_logs(incident: Incident) -> LogView | None:
    """None: no log speaks of a timeout."""
    progress = read_progress(incident)
    timed_out = [p for p in progress if p.work is not None]
    if not timed_out:
        return None
    counted = [p for p in timed_out if not _is_message(p)] or timed_out
    (group, desc), _ = Counter((p.group, p.desc) for p in counted).most_common(1)[0]
    inside = [p for p in counted if (p.group, p.desc) == (group, desc)]
    seqs = [p.work.seq for p in inside if p.work and p.work.seq is not None]
    seq = min(seqs, default=None)
    first = [p for p in inside if p.work and p.work.seq == seq]
    kinds = Counter(_call(p) for p in first)
    usual = kinds.most_common(1)[0][0]
    named = group is not None and not _is_message(first[0])
    behind = [p for p in progress if named and p.group == group and _is_behind(p, seq)]
    return LogView(
        group=group,
        desc=desc,
        seq=seq,
        waiting=tuple(p for p in first if _call(p) == usual or not named),
        behind=tuple(behind),
        other=tuple(p for p in first if named and _call(p) != usual),
        ahead=tuple(p for p in inside if named and p not in first),
        elsewhere=tuple(p for p in timed_out if p not in (inside if named else first)),
    )


def _keep(found: dict[tuple[int, str | None], RankProgress], progress: RankProgress) -> None:
    found[progress.rank, progress.group] = progress


def _progress(told: LogEvent, status: LogEvent) -> RankProgress:
    group = status.group
    return RankProgress(
        rank=told.rank if told.rank is not None else -1,
        group=group.name if group else None,
        desc=group.desc if group else None,
        work=told.work,
        counters=status.counters,
        event=told,
    )


def _is_behind(progress: RankProgress, seq: int | None) -> bool:
    counters = progress.counters
    return progress.work is None and counters is not None and seq is not None and counters.enqueued < seq


def _is_message(progress: RankProgress) -> bool:
    """Messages have a counter of their own on each rank: it compares with nothing."""
    return progress.work is not None and progress.work.op in _MESSAGES


def _call(progress: RankProgress) -> tuple[str, int | None] | None:
    return (progress.work.op, progress.work.numel_in) if progress.work else None
