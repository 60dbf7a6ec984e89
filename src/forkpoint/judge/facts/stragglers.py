"""Who arrives last, how often, by group and call site.

Only times of one clock compare: all members of a group if their clocks are known to agree, in slots whose last rank was
later than the possible clock error; if those are too few, the ranks of each host among themselves.

A rank that is late also issues the next op late, and that is the same delay again. So a slot counts only if the last
rank had time to catch up since the slot before: its own pause was longer than its delay.

A group in which everybody is last at times has no straggler. A rank is one if it is last at least half of the time,
more often than by chance, and by more than a millisecond.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import comb

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from forkpoint.judge.facts.blame import find_closings
from forkpoint.judge.facts.clocks import Clocks, find_clocks
from forkpoint.judge.facts.stacks import find_standings
from forkpoint.model.entries import Tables
from forkpoint.model.frames import user_place
from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import LogKind
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.trace import Track
from forkpoint.model.world import ProcessGroup

FEWEST = 8
"""Minimum number of times that a group met before anything is concluded."""
_HALF = 0.5
_CHANCE = 1e-4
_LEAST_NS = 1_000_000
_NS = 1e9

Times = NDArray[np.int64]
Seconds = NDArray[np.float64]


class Late(Struct, frozen=True):
    rank: int
    times: int
    usual_ns: int
    """How late compared with the median of the others, at the median."""


class Arrivals(Struct, frozen=True):
    """Who came last to the ops that one group issued from one place."""

    group: ProcessGroup
    host: str | None
    """None if all members were compared. Otherwise only those of this host, whose clock is not known to agree with the
    others'.
    """
    ranks: tuple[int, ...]
    """Those that were compared."""
    site: str | None
    """`train.py:48`; None if the dumps have no stacks, or it was called from C++."""
    met: int
    """Number of slots that say something new."""
    last: tuple[Late, ...]
    """Most often first."""

    @property
    def straggler(self) -> Late | None:
        """None if nobody, if it is evenly spread, or if there are too few slots."""
        if self.met < FEWEST or not self.last:
            return None
        most = self.last[0]
        often = most.times >= _HALF * self.met and _by_chance(most.times, self.met, len(self.ranks)) < _CHANCE
        return most if often and most.usual_ns >= _LEAST_NS else None


@fact
def find_arrivals(incident: Incident) -> tuple[Arrivals, ...]:
    """Those with a straggler first, then those that met most often."""
    timeline, clocks = incident.timeline, find_clocks(incident)
    found = [one for group in timeline.groups for one in _of_group(group, timeline.tables, clocks)]
    return tuple(sorted(found, key=lambda a: (a.straggler is None, -a.met, a.group, a.host or "", a.site or "")))


def _of_group(group: GroupTimeline, tables: Tables, clocks: Clocks) -> list[Arrivals]:
    tracks = {rank: track for rank in group.group.ranks if (track := group.track(rank)) is not None}
    if len(tracks) < max(len(group.group.ranks), 2):
        return []  # a rank that is not seen may be the last
    by_owner: dict[str, dict[int, Track]] = {}
    for rank, track in tracks.items():
        by_owner.setdefault(clocks.owner_of_rank[rank], {})[rank] = track
    if by_owner.keys() <= clocks.joined.keys():
        apart = np.array([clocks.joined[clocks.owner_of_rank[rank]] for rank in tracks])
        together = list(_of_ranks(group.group, None, tracks, apart if len(by_owner) > 1 else 0 * apart, tables))
        if len(by_owner) == 1 or sum(one.met for one in together) >= FEWEST:
            return together
    parts = [(owner, own) for owner, own in sorted(by_owner.items()) if len(own) > 1]
    return [one for owner, own in parts for one in _of_ranks(group.group, owner, own, np.zeros(len(own)), tables)]


def _of_ranks(
    group: ProcessGroup, host: str | None, tracks: Mapping[int, Track], apart: Seconds, tables: Tables
) -> Iterator[Arrivals]:
    ranks = tuple(tracks)
    seqs, times = _issued(list(tracks.values()))
    last = times.argmax(axis=0)
    counted = _is_fresh(times, last) & _is_sure(times, last, apart)
    by = times.max(axis=0) - np.sort(times, axis=0)[(len(ranks) - 1) // 2]
    stacks = _stacks(tracks[ranks[0]], seqs, tables)
    lates: dict[int, list[tuple[int, int]]] = {}
    for slot in counted.nonzero()[0].tolist():
        lates.setdefault(int(stacks[slot]), []).append((ranks[last[slot]], int(by[slot])))
    for stack, found in lates.items():
        often = Counter(rank for rank, _ in found)
        late = [Late(rank, n, int(np.median([by for r, by in found if r == rank]))) for rank, n in often.items()]
        late.sort(key=lambda one: (-one.times, one.rank))
        yield Arrivals(group, host, ranks, _site(stack, tables), len(found), tuple(late))


def _issued(tracks: Sequence[Track]) -> tuple[Times, Times]:
    """The slots for which every rank still has the time, and those times: ranks x slots."""
    kept = [(track.recent_seqs, track.recent_created_ns) for track in tracks]
    common = kept[0][0]
    for seqs, _ in kept[1:]:
        if not np.array_equal(common, seqs):
            common = common[np.isin(common, seqs)]
    times = [created[np.searchsorted(seqs, common)] for seqs, created in kept]
    return common, np.array(times, np.int64).reshape(len(tracks), len(common))


def _is_fresh(times: Times, last: Times) -> NDArray[np.bool_]:
    """Slots before which the last rank could have caught up. The first one may still show an earlier delay."""
    slots = np.arange(times.shape[1])
    late = times.max(axis=0) - np.partition(times, -2, axis=0)[-2]
    pause = times[last, slots] - times[last, np.maximum(slots - 1, 0)]
    return (pause > late) & (slots > 0)


def _is_sure(times: Times, last: Times, apart: Seconds) -> NDArray[np.bool_]:
    """Slots to which one rank came after each of the others by more than the possible clock error."""
    if not apart.any():
        return np.ones(times.shape[1], np.bool_)
    later = (times.max(axis=0) - times) / _NS > apart[:, None] + apart[last]
    later[last, np.arange(times.shape[1])] = True
    return later.all(axis=0)


def _stacks(track: Track, seqs: Times, tables: Tables) -> NDArray[np.uint64]:
    """The call site of each slot, as this rank has it; 0 if it has none."""
    found = np.zeros(len(seqs), np.uint64)
    for block in (tables.blocks[key] for key in track.blocks):
        if len(seqs) and block.seqs[-1] >= seqs[0]:
            at = np.minimum(np.searchsorted(block.seqs, seqs), len(block.seqs) - 1)
            found = np.where(block.seqs[at] == seqs, block.stack[at], found)
    return found


def _site(stack: int, tables: Tables) -> str | None:
    return user_place(tables.stacks.get(stack))


def _by_chance(times: int, met: int, ranks: int) -> float:
    """How likely it is that a given rank is last this often if all ranks were alike."""
    p = 1 / ranks
    return sum(comb(met, k) * p**k * (1 - p) ** (met - k) for k in range(times, met + 1))


# ---------------------------------------------------------------------------------------------------------------------
# Logs alone.


def find_late_at_one_line(incident: Incident) -> tuple[int, ...]:
    """All ranks ended at one line. Most waited there until their timeout; the others had not waited as long when the
    connection was closed on them. Had all come in time, nobody would have waited: these few came late.
    """
    world = set(incident.timeline.world)
    waited = {e.rank for e in incident.capture.events if e.kind is LogKind.PEER_TIMEOUT}
    closed = {e.rank for e in find_closings(incident) if e.rank is not None} - waited
    places = {one.place for one in find_standings(incident).values()}
    failed = {e.rank for e in incident.capture.events if e.is_failure and e.exception and e.rank is not None}
    everyone = waited | closed == world == failed and incident.timeline.unseen <= 1 and len(places) == 1
    few = 2 * len(closed) < len(world)
    return tuple(sorted(closed)) if closed and everyone and few and () not in places else ()
