"""Which ranks moved from one look to the next, and for how long none did."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forkpoint.live.stall import Stillness
from forkpoint.model.timeline import Timeline
from forkpoint.model.trace import RankTrace, Track
from forkpoint.watch.sight import GroupProgress
from forkpoint.watch.sources import Dump

_Stand = tuple[str, int, int | None, int | None]
"""Where it is, newest op, last one done, first one that is not."""


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
    """Of the ranks that could be read."""
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
            still.append(max(known.see(standing, dump.seen), _told(trace, dump)))
        pending = any(standing.is_pending for standing in standings.values())
        return Movement(standings, frozenset(moved), pending, min(still, default=0.0))


def _told(trace: RankTrace, dump: Dump) -> float:
    """How long before the dump was written the rank last did something, on the clock that wrote both."""
    return dump.written - trace.last_ns / 1e9 if dump.written is not None and trace.last_ns else 0.0


def standing_of(trace: RankTrace) -> RankStanding:
    groups = [(f"{g.name} {g.desc} {g.members}", g.collectives) for g in trace.groups]
    channels = [(f"{c.group.name} {c.group.desc} {c.source}->{c.destination}", c.messages) for c in trace.channels]
    return RankStanding(tuple(sorted(_stand(where, track) for where, track in (*groups, *channels) if track)))


def _stand(where: str, track: Track) -> _Stand:
    # Messages are numbered by what the ring buffer still holds, so the record tells the newest.
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
