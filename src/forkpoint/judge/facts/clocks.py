"""Which clock a time was read from, and which clocks can be compared. Times of different clocks imply no order."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from forkpoint.evidence.text import Stamp, read_stamp
from forkpoint.model.capture import Capture, Remark
from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import SYNCHRONISING, OpState
from forkpoint.model.timeline import GroupTimeline, Timeline
from forkpoint.model.trace import RankTrace

# ---------------------------------------------------------------------------------------------------------------------
# How far apart hosts' clocks are, derived from collectives.
#
# A synchronising collective does not end on any rank before every rank has issued it. So if rank 1 issued seq 7 at
# 10:05 on its clock, and rank 0 saw seq 7 end at 10:00 on its own, rank 1's clock is at least five minutes ahead.
# Swapping the ranks gives the opposite bound.

COMPARABLE = 10.0
"""Seconds by which two clocks may differ and still order events. Timeouts are tens of seconds or more, so their causes
and consequences stay apart.
"""
_TRIES = 8
_NS_FLOAT = 1e9


class _Group(Struct, frozen=True):
    """A group with the last finished op of each member, by kind of track. Only ops that end nowhere before all ranks
    issued them.
    """

    timeline: GroupTimeline
    done: dict[int, int]

    def seen(self) -> Iterator["_Seen"]:
        """One at a time: there may be hundreds of thousands."""
        told = ((rank, kind, ns) for rank, kind, ns in self.timeline.traces.completed() if ns and kind in self.done)
        return (_Seen(self.timeline, rank, self.done[kind], ns / _NS_FLOAT) for rank, kind, ns in told)


class _Seen(Struct, frozen=True):
    """What one rank saw of a group."""

    group: GroupTimeline
    rank: int
    done_seq: int
    done_at: float

    def issued(self, seq: int) -> float | None:
        track = self.group.track(self.rank)
        assert track is not None  # it recorded what it saw
        created = track.created(seq)
        return None if created is None else created / _NS_FLOAT


def join_clocks(timeline: Timeline, owners: Mapping[int, str]) -> dict[str, float]:
    """The largest set of clocks that agree: owner -> seconds by which it may differ from the first one."""
    groups = [_Group(group, done) for group in timeline.groups if (done := _done(group))]
    told = {s.rank for group in groups for s in group.seen()}
    ranks = sorted(told) or sorted(r for r in timeline.traces if r in owners)
    best: dict[str, float] = {}
    tried: set[str] = set()
    for rank in ranks:
        if owners[rank] in tried or len(tried) >= _TRIES:
            continue
        joined = _grow(owners[rank], groups, owners)
        tried |= joined.keys()
        if _size(joined, owners) > _size(best, owners):
            best = joined
    return best


def _size(joined: dict[str, float], owners: Mapping[int, str]) -> int:
    return sum(owner in joined for owner in owners.values())


def _grow(start: str, groups: list[_Group], owners: Mapping[int, str]) -> dict[str, float]:
    joined = {start: 0.0}
    grew = True
    while grew:
        before = len(joined)
        for group in groups:
            known = sum(owners[rank] in joined for rank in group.timeline.traces)
            if 0 < known < len(group.timeline.traces):
                _join_members(group, joined, owners)
        grew = len(joined) > before
    return joined


def _join_members(group: _Group, joined: dict[str, float], owners: Mapping[int, str]) -> None:
    """Owners whose clocks are bounded relative to the member whose clock is known best."""
    known = (s for s in group.seen() if owners[s.rank] in joined)
    pivot = min(known, key=lambda s: (joined[owners[s.rank]], s.rank), default=None)
    if pivot is None:
        return
    issued = {seq: pivot.issued(seq) for seq in group.done.values()}
    for one in group.seen():
        if owners[one.rank] in joined:
            continue
        apart = _apart(pivot, one, issued[one.done_seq])
        if apart is not None and apart + joined[owners[pivot.rank]] <= COMPARABLE:
            joined[owners[one.rank]] = apart + joined[owners[pivot.rank]]


def _apart(pivot: _Seen, other: _Seen, pivot_issued: float | None) -> float | None:
    """The largest possible difference of two clocks. None if there is no bound, or if the bounds contradict (a clock
    was set).
    """
    other_issued = other.issued(pivot.done_seq)
    if other_issued is None or pivot_issued is None:
        return None
    least, most = other_issued - pivot.done_at, other.done_at - pivot_issued
    return max(abs(least), abs(most)) if least <= most else None


def _done(group: GroupTimeline) -> dict[int, int]:
    found: dict[int, int] = {}
    for kind, rank in group.kinds:
        track = group.track(rank)
        done = track.last_done if track else None
        if done and done.state is OpState.COMPLETED and done.signatures[0].op in SYNCHRONISING:
            found[kind] = done.seq
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Which clock a time was read from, and which clocks can be compared. Times of different clocks imply no order.
#
# Dumps have UTC by their host's clock. C++ lines have local time without year or zone; kernels have local time, or
# seconds since boot. A log is tied to a dump by an event that both contain: an op's issue time plus the duration
# reported by the watchdog is when the watchdog printed its line. The difference, rounded to a quarter of an hour, is
# the time zone. Hosts are tied to each other by the bounds that their ranks' collectives put on the clock difference.

UTC = "UTC"
_QUARTER = 900
_WIDEST_ZONE = 14 * 3600
_EPOCH_DIGITS = 10
"""Seconds since 1970 have ten digits; an uptime with that many would be three hundred years."""
_SOME_TIME = 962_452_800
_UNPLACED = "rank "
_NS = 1_000_000_000


class Instant(Struct, frozen=True):
    clock: str
    """Only instants on the same clock compare."""
    second: int


class Clocks(Struct, frozen=True):
    owner_of_rank: dict[int, str]
    """Whose clock a rank's process reads: its host's, or the rank's own if the host is not known."""
    joined: dict[str, float]
    """Owners whose clocks agree, and the seconds by which each may be off."""
    zones: dict[str, int]
    """Owner of a log -> seconds east of UTC."""
    rank_of_file: dict[str, int]
    """Only logs of a single rank."""
    steps: dict[str, int]
    """Log -> the largest backward step of its times, in seconds. If it is too large, the log mixes several clocks."""
    near: float
    """Some second of the incident, used to guess years that are not printed."""
    common: str
    """The name of the clock that most dumps share."""

    def of_dump(self, rank: int, ns: int) -> Instant:
        return self._by_utc(self.owner_of_rank[rank], ns // _NS)

    def of_event(self, event: LogEvent) -> Instant | None:
        stamp = read_stamp(event.time) if event.time else None
        if stamp is None or stamp.second is None:
            return None
        if not stamp.from_c10 and self.steps.get(event.file, 0) > COMPARABLE:
            return None  # lines of two time zones or two hosts in one file
        return self._dated(stamp, self.owner(event))

    def of_remark(self, remark: Remark) -> Instant | None:
        host = short_host(remark.host) if remark.host else remark.file
        if remark.when is None or not remark.when.isdigit():
            stamp = read_stamp(remark.when or "")
            return self._dated(stamp, host) if stamp and stamp.second is not None else None
        if len(remark.when) < _EPOCH_DIGITS:
            return Instant(f"{host}: seconds since boot", int(remark.when))
        return self._by_utc(host, int(remark.when))

    def owner(self, event: LogEvent) -> str:
        """Whose clock a line was dated by."""
        rank = event.speaker.rank if event.speaker.rank is not None else self.rank_of_file.get(event.file)
        of_rank = self.owner_of_rank.get(rank) if rank is not None else None
        if of_rank is not None and not of_rank.startswith(_UNPLACED):
            return of_rank
        if event.speaker.host:
            return short_host(event.speaker.host)
        shared = event.file not in self.rank_of_file and self.steps.get(event.file, 0) <= COMPARABLE
        return event.file if shared or of_rank is None else of_rank

    def _by_utc(self, owner: str, second: int) -> Instant:
        return Instant(self.common if owner in self.joined else f"{owner}: UTC by its own clock", second)

    def _dated(self, stamp: Stamp, owner: str) -> Instant | None:
        second = stamp.seconds(self.near)
        if second is None:
            return None
        zone = self.zones.get(owner) if stamp.zone is None else stamp.zone
        if zone is None and owner in self.joined:
            zone = self._agreed()
        return self._by_utc(owner, second - zone) if zone is not None else Instant(f"{owner}: local time", second)

    def _agreed(self) -> int | None:
        """The machines of one job are in one time zone, if those that tell agree."""
        zones = set(self.zones.values())
        return zones.pop() if len(zones) == 1 else None


@fact
def find_clocks(incident: Incident) -> Clocks:
    capture, timeline = incident.capture, incident.timeline
    placed = {place.rank: short_host(place.host) for place in capture.places}
    ranks = {*timeline.world, *timeline.traces, *placed}
    owners = {rank: placed.get(rank, f"{_UNPLACED}{rank}") for rank in ranks}
    ranks_of: dict[str, set[int | None]] = defaultdict(set)
    for file, rank in capture.logs:
        ranks_of[file].add(rank)
    alone = {file: rank for file, (rank, *more) in ranks_of.items() if rank is not None and not more}
    near = _near(capture)
    clocks = Clocks(owners, join_clocks(timeline, owners), {}, alone, _steps(capture, near), near, UTC)
    return _with_zones(clocks, capture, timeline)


def short_host(host: str) -> str:
    """NCCL omits the domain, a journal may print it. An address has no domain."""
    name = host.casefold().partition(".")[0]
    return host if name.isdigit() else name


def _near(capture: Capture) -> float:
    """The last time in a dump, else a time with its year, else the time of any line; independent of the order of files."""
    recorded = max((trace.last_ns for trace in capture.traces), default=0)
    if recorded:
        return recorded / _NS
    printed = {e.time for e in capture.events if e.time} | {r.when for r in capture.remarks if r.when}
    stamps = [stamp for text in sorted(printed) if (stamp := read_stamp(text))]
    first = min(stamps, key=lambda stamp: stamp.year is None, default=None)
    return (first.seconds(_SOME_TIME) if first else None) or _SOME_TIME


def _steps(capture: Capture, near: float) -> dict[str, int]:
    steps: dict[str, int] = {}
    latest: dict[str, int] = {}
    for event in sorted(capture.events, key=lambda e: (e.file, e.line)):
        stamp = read_stamp(event.time) if event.time else None
        second = stamp.seconds(near) if stamp else None
        if second is not None:
            before = latest.setdefault(event.file, second)
            steps[event.file] = max(steps.get(event.file, 0), before - second)
            latest[event.file] = max(before, second)
    return steps


def _with_zones(clocks: Clocks, capture: Capture, timeline: Timeline) -> Clocks:
    found: dict[str, set[int]] = defaultdict(set)
    joins: dict[str, float] = {}
    for event in capture.events:
        if event.kind is not LogKind.WATCHDOG_TIMEOUT or event.rank is None or event.rank not in timeline.traces:
            continue
        owner = clocks.owner(event)
        for zone, rest in _zones(event, event.rank, timeline):
            found[owner].add(zone)
            if owner == event.file and clocks.owner_of_rank[event.rank] in clocks.joined:
                # A log of many ranks can be dated by the dump of any of them.
                joins[owner] = max(joins.get(owner, 0.0), rest + clocks.steps.get(owner, 0))
    for owner, zone in _zones_between(clocks, capture, timeline):
        if owner not in found:
            found[owner].add(zone)
    zones = {owner: min(several) for owner, several in found.items() if len(several) == 1}
    joined = {**clocks.joined, **{o: apart for o, apart in joins.items() if o in zones and apart <= COMPARABLE}}
    apart = max(joined.values(), default=0.0)
    common = f"{UTC}, clocks within {apart:.1f} s" if apart else UTC
    return replace(clocks, joined=joined, zones=zones, common=common)


def _zones_between(clocks: Clocks, capture: Capture, timeline: Timeline) -> Iterator[tuple[str, int]]:
    """A rank logs its settings before its first op, and a dump or its exit after its last one: only one zone may fit."""
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    owners: dict[int, str] = {}
    for event in capture.events:
        stamp = read_stamp(event.time) if event.time else None
        second = stamp.seconds(clocks.near) if stamp and stamp.from_c10 else None
        if second is None or event.rank is None or event.file not in clocks.rank_of_file:
            continue
        owners[event.rank] = clocks.owner(event)
        if event.kind is LogKind.SETTINGS:
            before[event.rank] = min(second, before.get(event.rank, second))
        elif event.kind in (LogKind.DUMPED, LogKind.LEFT):
            after[event.rank] = max(second, after.get(event.rank, second))
    for rank in before.keys() & after.keys() & timeline.traces.keys():
        trace = timeline.traces[rank]
        least = -(-(before[rank] - trace.first_ns // _NS) // _QUARTER)
        most = (after[rank] + 1 - trace.last_ns // _NS) // _QUARTER
        if trace.from_start and least == most and abs(least * _QUARTER) <= _WIDEST_ZONE:
            yield owners[rank], least * _QUARTER


def _zones(event: LogEvent, rank: int, timeline: Timeline) -> Iterator[tuple[int, float]]:
    """Time zones in which the line was printed when its op had run for that long, and the remaining seconds.

    The line may not name its group, so every op with that number is tried; few of them give a whole time zone.
    """
    stamp = read_stamp(event.time) if event.time else None
    if stamp is None or not stamp.from_c10 or event.work is None or event.work.ran_ms is None or event.seq is None:
        return
    for issued_ns in _issued(timeline.traces[rank], event.seq):
        spoke = issued_ns / _NS + event.work.ran_ms / 1000
        printed = stamp.seconds(spoke)
        if printed is not None:
            zone = round((printed - spoke) / _QUARTER) * _QUARTER
            rest = abs(printed - spoke - zone)
            if abs(zone) <= _WIDEST_ZONE and rest <= COMPARABLE:
                yield zone, rest


def _issued(trace: RankTrace, seq: int) -> Iterator[int]:
    for track in (group.collectives for group in trace.groups if group.collectives):
        for at in (track.recent_seqs == seq).nonzero()[0]:
            yield int(track.recent_created_ns[at])
    for channel in trace.channels:  # numbered differently than by the watchdog: the op that is stuck
        if channel.messages.first_active:
            yield channel.messages.first_active.created_ns
