"""When is what a look shows an alarm?

Ranks of a running job are asked at different moments, so a rank that is behind in one look is not a finding. An alarm
needs evidence that time cannot undo, or time itself:

- mismatched calls: members of a group issued different ops, sizes or dtypes at one seq. That cannot change any more.
- a ring of waits whose ranks do not move, with stacks that show each of them inside a communication call.
- the logs report an end (a watchdog's timeout, a kill, a crash), and no rank moves. An exception may have been caught, so
  it counts only once the logs are quiet as well, and the rank that raised it does not answer.
- the job has stalled (`live/stall.py`).

The verdict must be the same in two looks in a row: half-written files, answers from before and after a restart, and lines
that are still to come would change it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from forkpoint.judge.facts.stacks import is_communicating
from forkpoint.live.stall import Stillness, has_stalled
from forkpoint.live.watch.sources import Dump
from forkpoint.model.capture import Capture
from forkpoint.model.incident import Divergence, PartingKind
from forkpoint.model.log import FAILURES, LogEvent, LogKind
from forkpoint.model.timeline import Timeline
from forkpoint.model.trace import RankTrace, Track
from forkpoint.model.verdict import Cause, Verdict

# ---------------------------------------------------------------------------------------------------------------------
# The result of one look.


class WatchState(StrEnum):
    RUNNING = "running"
    """Progress was seen since the look before."""
    WAITING = "waiting"
    """No progress seen, and nothing that would be an alarm: ranks may compute, load or save."""
    BLIND = "blind"
    """Nothing can be read."""
    FOUND = "found"
    """There is a verdict that time cannot undo, or nothing moved for too long."""


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far the ranks of a group have come. A rank that is behind is not a finding: they were asked at different moments."""

    group: str
    ranks: int
    lowest: int
    highest: int
    """Newest seq of the slowest and of the fastest rank."""
    behind: int
    """How many have not issued the highest."""


@dataclass(frozen=True, slots=True)
class WatchNote:
    """What a source could not get."""

    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Sight:
    at: str
    """UTC, `2026-11-15T01:18:27Z`."""
    state: WatchState
    why: str
    """One sentence."""
    ranks_expected: int
    """0: not known."""
    ranks_answering: int
    still_s: float
    """For how long no readable rank has moved, as far as known."""
    groups: tuple[GroupProgress, ...] = ()
    notes: tuple[WatchNote, ...] = ()
    verdict: Verdict | None = None
    evidence: str | None = None
    """The folder that the verdict was read from."""
    is_alarm: bool = False
    """The first sight of this incident: the one to tell others about."""
    capture: Capture | None = field(default=None, compare=False, repr=False)
    """What the verdict was judged from; only with an alarm."""
    seen: tuple[str, ...] = ()
    """Lines about earlier incidents at the same fork."""


# ---------------------------------------------------------------------------------------------------------------------
# Which ranks moved from one look to the next, and for how long none did.

_Stand = tuple[str, int, int | None, int | None]
"""Group or channel; record ids of the newest op, the last one done and the first one not done."""


@dataclass(frozen=True, slots=True)
class RankStanding:
    """How far a rank has come in each group and channel. It moved if any of this changed."""

    stands: tuple[_Stand, ...]

    @property
    def is_pending(self) -> bool:
        return any(active is not None for *_, active in self.stands)


@dataclass(frozen=True, slots=True)
class Movement:
    """From the look before to this one."""

    standings: Mapping[int, RankStanding]
    """Only ranks that could be read."""
    moved: frozenset[int]
    is_pending: bool
    """Some rank is in an op that is not done."""
    still_s: float
    """For how long none of these ranks moved."""


class ProgressTracker:
    def __init__(self) -> None:
        self._known: dict[int, Stillness[RankStanding]] = {}

    def step(self, traces: Iterable[RankTrace], dumps: Iterable[Dump]) -> Movement:
        """A rank without entries shows nothing, and one that is seen for the first time has not moved yet."""
        by_path = {dump.path: dump for dump in dumps}
        standings: dict[int, RankStanding] = {}
        moved: set[int] = set()
        still: list[float] = []
        for trace in traces:
            if not trace.entries:
                continue
            dump, standing = by_path[trace.file], standing_of(trace)
            known = self._known.setdefault(trace.rank, Stillness(standing, dump.seen))
            if known.value != standing:
                moved.add(trace.rank)
            standings[trace.rank] = standing
            still.append(max(known.see(standing, dump.seen), _idle_before_dump(trace, dump)))
        pending = any(standing.is_pending for standing in standings.values())
        return Movement(standings, frozenset(moved), pending, min(still, default=0.0))


def _idle_before_dump(trace: RankTrace, dump: Dump) -> float:
    """Seconds from the rank's last action to its dump; 0.0 if their clocks cannot be compared."""
    return dump.written - trace.last_ns / 1e9 if dump.written is not None and trace.last_ns else 0.0


def standing_of(trace: RankTrace) -> RankStanding:
    groups = [(f"{g.name} {g.desc} {g.members}", g.collectives) for g in trace.groups]
    channels = [(f"{c.group.name} {c.group.desc} {c.source}->{c.destination}", c.messages) for c in trace.channels]
    return RankStanding(tuple(sorted(_stand(where, track) for where, track in (*groups, *channels) if track)))


def _stand(where: str, track: Track) -> _Stand:
    # Seqs of messages only count what the ring buffer still holds, so record ids are compared.
    done, active = track.last_done, track.first_active
    return where, track.last.record_id, done.record_id if done else None, active.record_id if active else None


def group_progress(timeline: Timeline) -> tuple[GroupProgress, ...]:
    found: list[GroupProgress] = []
    for group in timeline.groups:
        newest = [track.last_seq for rank in group.traces if (track := group.track(rank))]
        if newest:
            highest = max(newest)
            behind = sum(seq < highest for seq in newest)
            found.append(GroupProgress(str(group.group), len(newest), min(newest), highest, behind))
    return tuple(found)


_ENDS = frozenset({
    LogKind.WATCHDOG_TIMEOUT,
    LogKind.WATCHDOG_DIED,
    LogKind.DESYNC,
    LogKind.KILLED,
    LogKind.CRASHED,
    LogKind.AGENT_FAILURE,
    LogKind.NODE_FAILED,
})  # fmt: skip
"""After these a process does not go on."""


class Ground(StrEnum):
    """What an alarm rests on."""

    MISMATCH = "mismatch"
    RING = "ring"
    LOGS = "logs"
    STILL = "still"


@dataclass(frozen=True, slots=True)
class LoggedEnds:
    """Failures and ends of processes in the logs since ranks last moved."""

    ends: int = 0
    failed: frozenset[int | None] = frozenset()
    """Ranks that reported a failure. None: a line that does not name its rank."""

    def with_events(self, said: Iterable[LogEvent]) -> "LoggedEnds":
        events = list(said)
        ends = sum(event.kind in _ENDS for event in events)
        return LoggedEnds(self.ends + ends, self.failed | {event.rank for event in events if event.kind in FAILURES})

    def show_lost_rank(self, answering: Iterable[int]) -> bool:
        """A failure that was not handled: the rank that reported it does not answer any more."""
        seen = frozenset(answering)
        return bool(self.failed - seen - {None}) if seen else bool(self.failed)


def find_ground(
    verdict: Verdict | None, step: Movement, logged: LoggedEnds, stall_s: float, *, quiet: bool
) -> Ground | None:
    """`verdict`: of the dumps alone. `quiet`: the logs did not grow since the look before."""
    divergence = verdict.divergence if verdict else None
    if divergence is not None and is_final(divergence):
        return Ground.MISMATCH
    if not step.moved and has_stalled(step.still_s, stall_s, waiting=step.is_pending):
        return Ground.STILL
    if not step.moved and (logged.ends or (quiet and logged.show_lost_rank(step.standings))):
        return Ground.LOGS
    if divergence is not None and divergence.how is PartingKind.CYCLE and not step.moved:
        return Ground.RING
    return None


def is_final(divergence: Divergence) -> bool:
    """Counts of messages change; what was issued at a seq does not."""
    if divergence.how is PartingKind.MESSAGE:
        return divergence.shift is None
    return divergence.how in (PartingKind.METADATA, PartingKind.VOLUME)


def stands(ground: Ground, verdict: Verdict, capture: Capture) -> bool:
    """Whether the verdict on all evidence confirms the ground for an alarm."""
    divergence = verdict.divergence
    match ground:
        case Ground.MISMATCH:
            return divergence is not None and is_final(divergence)
        case Ground.RING:
            inside = {s.rank for s in capture.stacks if is_communicating(s.stack)}
            return divergence is not None and bool(divergence.cycle) and inside.issuperset(divergence.cycle)
        case Ground.LOGS | Ground.STILL:
            return verdict.cause is not Cause.HEALTHY


def incident_of(verdict: Verdict) -> tuple[object, ...]:
    """Equal for verdicts on the same incident."""
    divergence = verdict.divergence
    where = (divergence.group, divergence.channel, divergence.seq, divergence.how) if divergence else ()
    return (verdict.cause, verdict.suspects, *where)
