"""Every group's and channel's order, aligned over ranks."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from forkpoint.model.op import Op
from forkpoint.model.trace import GroupTrace, RankTrace, Tables, Track
from forkpoint.model.world import ProcessGroup


class Gap(StrEnum):
    """Why a rank has no op in a slot."""

    NOT_REACHED = "not-reached"
    """It is alive in the evidence, and has not issued this op."""
    EVICTED = "evicted"
    """Issued or not, its dump does not hold it any more: older than its ring buffer, or left out because it was done."""
    NO_DUMP = "no-dump"
    """There is no dump, or the dump ends (cut, taken earlier) before it could show this."""


class GroupTraces(Mapping[int, GroupTrace]):
    """Of one group, by rank; each is made when it is asked for."""

    @abstractmethod
    def is_from_start(self, rank: int) -> bool:
        """The rank's ring buffer still holds its very first op, of whichever group."""
        ...

    @abstractmethod
    def is_partial(self, rank: int) -> bool:
        """What is done may be left out of the rank's dump."""
        ...

    @abstractmethod
    def completed(self) -> Iterator[tuple[int, int, int]]:
        """Ranks, the kind of each one's track, and when its last done op was completed (0: not told)."""
        ...


@dataclass(frozen=True, slots=True)
class GroupTimeline:
    """One group's collectives over its members."""

    group: ProcessGroup
    traces: GroupTraces
    """Members without a dump are absent."""
    blind_after: Mapping[int, int]
    """Ranks whose dump ends early -> the last seq it can speak of."""
    kinds: tuple[tuple[int, int], ...]
    """Each kind of track that members have, with one of them. Tracks of one kind, in any group, differ in times alone."""
    is_uneven: bool
    """Every member tells what it sent and received in all_to_all, and it was not the same on each."""
    has_messages: bool = False
    """Ranks also send and receive in it: then its counters count both, and number no collective."""
    maybe: tuple[int, ...] = ()
    """Ranks that may be members too: nobody declared who is one, and no dump of theirs keeps them out."""

    def track(self, rank: int) -> Track | None:
        trace = self.traces.get(rank)
        return trace.collectives if trace else None

    def is_evicted(self, rank: int) -> bool:
        """It holds no op of this group any more although it may have issued some."""
        return rank in self.traces and self.track(rank) is None and not self.traces.is_from_start(rank)

    def counter(self, rank: int) -> int | None:
        """The last collective that the rank enqueued, as its `pg_status` counts; None where that does not tell."""
        trace = None if self.has_messages else self.traces.get(rank)
        return trace.last_enqueued if trace else None

    def gap(self, rank: int, seq: int) -> Gap | None:
        """None: the rank issued (or may hold) the op `seq`."""
        if rank not in self.traces or seq > self.blind_after.get(rank, seq):
            return Gap.NO_DUMP
        track = self.track(rank)
        if track is not None and seq <= track.last_seq:
            return Gap.EVICTED if seq < track.first_seq else None
        counted = self.counter(rank)
        if counted is not None and (track is None or self.traces.is_partial(rank)):
            return Gap.NOT_REACHED if counted < seq else Gap.EVICTED
        if track is None:
            return Gap.NOT_REACHED if self.traces.is_from_start(rank) else Gap.EVICTED
        return Gap.NO_DUMP if self.traces.is_partial(rank) else Gap.NOT_REACHED


@dataclass(frozen=True, slots=True)
class Channel:
    """Messages from one rank to another in one group, as each end recorded them."""

    group: ProcessGroup
    source: int
    destination: int
    sent: Track | None
    received: Track | None
    """None: that end has no dump, or recorded none."""

    def end(self, rank: int) -> Track | None:
        """What this rank, if it is an end, recorded."""
        return {self.source: self.sent, self.destination: self.received}.get(rank)

    @property
    def counted(self) -> bool:
        """Both ends hold their first message, so that the n-th sent is the n-th received."""
        return bool(self.sent and self.received and self.sent.from_start and self.received.from_start)


class Channels(Sequence[Channel]):
    """Of a job, by group and ends. Each is made when it is asked for: there may be hundreds of thousands."""

    @abstractmethod
    def find(self, group: ProcessGroup, ends: tuple[int, int]) -> Channel: ...

    @abstractmethod
    def by_kind(self) -> Iterator[tuple[Channel, Sequence[int]]]:
        """Channels whose tracks are of the same kinds at both ends: the first of them, and the indexes of all."""
        ...


@dataclass(frozen=True, slots=True)
class Position:
    """The earliest op of a rank that is not done: where it stands."""

    op: Op
    group: ProcessGroup
    channel: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Stand:
    """What must be known of a `Position` to see who waits for whom."""

    group: ProcessGroup
    channel: tuple[int, int] | None
    index: int | None
    """Of the channel, in `Timeline.channels`."""
    seq: int
    batch: int
    record_id: int
    created_ns: int


class Stands(Mapping[int, tuple[Stand, ...]]):
    """Per rank with a whole dump and something pending: the op in which it stands, or all messages of its batch."""

    @abstractmethod
    def held_elsewhere(self, group: GroupTimeline) -> frozenset[int]:
        """Members that have an op of the group pending, but stand in an earlier one of another group or channel."""
        ...


UNBOUNDED = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Timeline:
    world: tuple[int, ...]
    unseen: int
    """How many more ranks there may be: 0 where a dump or log states the size; 1 where every rank up to the highest has a
    dump, a log or a stack, since the last one may have left nothing; UNBOUNDED otherwise."""
    traces: Mapping[int, RankTrace]
    groups: tuple[GroupTimeline, ...]
    channels: Channels
    positions: Mapping[int, tuple[Position, ...]]
    """Per rank with a whole dump: its first active op in each group and channel, in the order of issue."""
    stands: Stands
    blind: frozenset[int]
    """Ranks whose dump ends early: their history counts, where they stand does not."""
    entering: frozenset[int]
    """Ranks that stand in an op of which only we infer that it is not done (OpState.ENTERING, ABORTED)."""
    tables: Tables

    def of_group(self, group: ProcessGroup) -> GroupTimeline:
        return next(g for g in self.groups if g.group == group)

    def of_channel(self, group: ProcessGroup, ends: tuple[int, int]) -> Channel:
        return self.channels.find(group, ends)

    @property
    def world_known(self) -> bool:
        return self.unseen < UNBOUNDED
