"""Every group's and channel's order, aligned over ranks."""

from collections.abc import Mapping
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
    """Older than what its ring buffer still holds."""
    NO_DUMP = "no-dump"
    """There is no dump, or the dump ends (cut, taken earlier) before it could show this."""


@dataclass(frozen=True, slots=True)
class GroupTimeline:
    """One group's collectives over its members."""

    group: ProcessGroup
    traces: Mapping[int, GroupTrace]
    """By rank; members without a dump are absent."""
    blind_after: dict[int, int]
    """Ranks whose dump ends early -> the last seq it can speak of."""
    evicted: frozenset[int]
    """Ranks that hold no op of this group any more although they may have issued some."""
    maybe: tuple[int, ...] = ()
    """Ranks that may be members too: nobody declared who is one, and no dump of theirs keeps them out."""

    def track(self, rank: int) -> Track | None:
        trace = self.traces.get(rank)
        return trace.collectives if trace else None

    def gap(self, rank: int, seq: int) -> Gap | None:
        """None: the rank issued (or may hold) the op `seq`."""
        track = self.track(rank)
        if rank in self.blind_after and seq > self.blind_after[rank]:
            return Gap.NO_DUMP
        if rank not in self.traces:
            return Gap.NO_DUMP
        if track is None:
            return Gap.EVICTED if rank in self.evicted else Gap.NOT_REACHED
        if seq > track.last_seq:
            return Gap.NOT_REACHED
        return Gap.EVICTED if seq < track.first_seq else None


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


@dataclass(frozen=True, slots=True)
class Position:
    """The earliest op of a rank that is not done: where it stands."""

    op: Op
    group: ProcessGroup
    channel: tuple[int, int] | None


UNBOUNDED = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Timeline:
    world: tuple[int, ...]
    unseen: int
    """How many more ranks there may be: 0 where a dump or log states the size; 1 where every rank up to the highest has
    a log, since the last one may have left nothing; UNBOUNDED otherwise."""
    traces: Mapping[int, RankTrace]
    groups: tuple[GroupTimeline, ...]
    channels: tuple[Channel, ...]
    positions: Mapping[int, tuple[Position, ...]]
    """Per rank with a whole dump: its first active op in each group and channel, in the order of issue."""
    blind: frozenset[int]
    """Ranks whose dump ends early: their history counts, where they stand does not."""
    entering: frozenset[int]
    """Ranks that stand in an op of which only we infer that it is not done (OpState.ENTERING, ABORTED)."""
    tables: Tables

    def of_group(self, group: ProcessGroup) -> GroupTimeline:
        return next(g for g in self.groups if g.group == group)

    def of_channel(self, group: ProcessGroup, ends: tuple[int, int]) -> Channel:
        return next(c for c in self.channels if c.group == group and (c.source, c.destination) == ends)

    @property
    def world_known(self) -> bool:
        return self.unseen < UNBOUNDED
