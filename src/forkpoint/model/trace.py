"""What one rank's dump holds, small enough to keep for 100,000 ranks.

Ops are not kept one by one. A rank's ops in a group are cut into blocks of BLOCK absolute sequence numbers; ranks that
did the same share the same block, stored once in `Tables`. Only the ops at the frontier (last done, first active,
last) are kept whole. Memory therefore grows with what ranks did *differently*, not with ranks times entries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from forkpoint.model.op import Op, OpState, Signature, Stack

BLOCK = 128
"""Sequence numbers per block: small enough to look through at once, large enough that keys cost little."""
RECENT = 32
"""Ops per group whose creation times are kept: enough to see the pace before a hang, whatever the buffer size."""
RECENT_MESSAGES = 8
"""The same per channel, of which a rank may have many."""

RECENT_CALLS = 256
"""Calls per rank, over all its groups, whose order is kept: several iterations of what it usually does."""

Ints = NDArray[np.int64]
Tokens = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Block:
    """A run of slots as one rank or more recorded it."""

    seqs: Ints
    match: Tokens
    """What members of a group must agree on in a slot: operation, sizes where they must fit, dtype."""
    stack: Tokens
    """Where it was called from; 0 = the dump has no stacks, 1 = called from C++."""
    epoch: Ints
    """For messages: how many collectives the group had done when it was issued. 0 for collectives."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What many ranks share, stored once."""

    signatures: dict[int, tuple[Signature, ...]]
    """An example of the call behind each match token."""
    stacks: dict[int, Stack]
    blocks: dict[int, Block]


class Track(Protocol):
    """The ops one rank issued in one order: a group's collectives, or one direction of a channel."""

    @property
    def count(self) -> int: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def from_start(self) -> bool:
        """The ring buffer still holds the first op; otherwise what came before `first_seq` is unknown."""
        ...

    @property
    def blocks(self) -> tuple[int, ...]:
        """Keys into Tables.blocks, ascending."""
        ...

    @property
    def last_done(self) -> Op | None: ...
    @property
    def first_active(self) -> Op | None:
        """The earliest op that is not done and after which none is done."""
        ...

    @property
    def active_state(self) -> OpState | None:
        """Of `first_active`, without the rest of it."""
        ...

    @property
    def active_seq(self) -> int | None: ...
    @property
    def last(self) -> Op: ...
    @property
    def recent_seqs(self) -> Ints: ...
    @property
    def recent_created_ns(self) -> Ints: ...
    def created(self, seq: int) -> int | None:
        """When an op was created, of those that are recent or kept whole."""
        ...

    @property
    def longest_pause_seq(self) -> int: ...
    @property
    def longest_pause_ns(self) -> int:
        """The op before which this rank paused longest, however long ago, and for how long."""
        ...


def find_created(track: Track, seq: int) -> int | None:
    """Among the recent ops."""
    at = int(np.searchsorted(track.recent_seqs, seq))
    found = at < len(track.recent_seqs) and track.recent_seqs[at] == seq
    return int(track.recent_created_ns[at]) if found else None


@dataclass(frozen=True, slots=True)
class ReadTrack:
    """A track as it was read. `packed/` has the form in which it is kept."""

    count: int
    first_seq: int
    last_seq: int
    from_start: bool
    blocks: tuple[int, ...]
    last_done: Op | None
    first_active: Op | None
    last: Op
    recent_seqs: Ints
    recent_created_ns: Ints
    longest_pause_seq: int
    longest_pause_ns: int

    @property
    def active_state(self) -> OpState | None:
        return self.first_active.state if self.first_active else None

    @property
    def active_seq(self) -> int | None:
        return self.first_active.seq if self.first_active else None

    def created(self, seq: int) -> int | None:
        kept = (op for op in (self.last_done, self.first_active, self.last) if op and op.seq == seq)
        return next((op.created_ns for op in kept), None) or find_created(self, seq)


@dataclass(frozen=True, slots=True)
class Volumes:
    """Elements sent and received in all_to_all, whose sizes may differ by rank but must balance over the group."""

    seqs: Ints
    sent: Ints
    received: Ints


class GroupTrace(Protocol):
    """One group as one rank saw it."""

    @property
    def key(self) -> tuple[object, object]:
        """Of its name and its members: equal for one group on all ranks, and cheap to compare."""
        ...

    @property
    def name(self) -> str: ...
    @property
    def desc(self) -> str: ...
    @property
    def members(self) -> tuple[int, ...] | None:
        """None: the dump does not say."""
        ...

    @property
    def collectives(self) -> Track | None: ...
    @property
    def volumes(self) -> Volumes | None: ...
    @property
    def last_enqueued(self) -> int | None: ...
    @property
    def last_completed(self) -> int | None:
        """From pg_status. Collectives and P2P share these counters, so they say something only where there is no P2P."""
        ...


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """A group as it was read."""

    name: str
    desc: str
    members: tuple[int, ...] | None
    collectives: ReadTrack | None = None
    volumes: Volumes | None = None
    last_enqueued: int | None = None
    last_completed: int | None = None

    @property
    def key(self) -> tuple[object, object]:
        return self.name, self.members


@dataclass(frozen=True, slots=True)
class ChannelTrace:
    """One end of a channel: the messages this rank sent to, or received from, one peer in one group."""

    group: GroupTrace
    source: int
    destination: int
    """Global ranks."""
    messages: Track


class RankTrace(Protocol):
    """What one rank's dump holds."""

    @property
    def rank(self) -> int: ...
    @property
    def file(self) -> str: ...
    @property
    def schema(self) -> str: ...
    @property
    def comm_lib(self) -> str:
        """`nccl`, `gloo`, ... as the entries say; "" without entries."""
        ...

    @property
    def entries(self) -> int: ...
    @property
    def cut(self) -> str | None:
        """Why the entries end early; None for a whole dump."""
        ...

    @property
    def world(self) -> tuple[int, ...] | None:
        """Members of the default group, if the dump states them."""
        ...

    @property
    def world_is_guess(self) -> bool:
        """It is the group made last, which may be another one (gloo)."""
        ...

    @property
    def groups(self) -> Sequence[GroupTrace]: ...
    @property
    def channels(self) -> Sequence[ChannelTrace]: ...
    @property
    def from_start(self) -> bool:
        """The ring buffer still holds the rank's very first op."""
        ...

    @property
    def first_ns(self) -> int: ...
    @property
    def last_ns(self) -> int:
        """The time the entries cover."""
        ...

    @property
    def script(self) -> str | None:
        """The file at the outer end of the stacks: what was started. Same on all ranks of a job."""
        ...

    @property
    def has_stacks(self) -> bool: ...
    @property
    def timed(self) -> bool:
        """Start events were recorded, so `scheduled` really means "not started"."""
        ...

    @property
    def is_partial(self) -> bool:
        """Ops that are done may be left out of it (TORCH_INCLUDE_ONLY_ACTIVE, the debug server), or all of them (the recorder
        was off): what it does not hold may have been issued and done.
        """
        ...

    @property
    def has_counters(self) -> bool:
        """It has `pg_status`, which only a recorder that is on keeps."""
        ...

    @property
    def recent_records(self) -> Ints:
        """record_id of the last calls over all groups and channels, oldest first: neighbours."""
        ...

    @property
    def recent_groups(self) -> Ints:
        """Index into `groups` of each of them."""
        ...

    @property
    def recent_matches(self) -> Tokens:
        """What each of them was, by itself: comparable between ranks."""
        ...

    @property
    def recent_ops(self) -> Tokens:
        """What each of them was, in which group. Comparable within this rank only."""
        ...

    @property
    def recent_stacks(self) -> Tokens:
        """Where each was called from."""
        ...

    @property
    def recent_calls(self) -> Tokens: ...


@dataclass(frozen=True, slots=True)
class ReadTrace:
    """A rank's dump as it was read."""

    rank: int
    file: str
    schema: str
    comm_lib: str
    entries: int
    cut: str | None
    world: tuple[int, ...] | None
    world_is_guess: bool
    groups: tuple[ReadGroup, ...]
    channels: tuple[ChannelTrace, ...]
    from_start: bool
    first_ns: int
    last_ns: int
    script: str | None
    has_stacks: bool
    timed: bool
    is_partial: bool
    has_counters: bool
    recent_records: Ints
    recent_groups: Ints
    recent_matches: Tokens
    recent_ops: Tokens
    recent_stacks: Tokens

    @property
    def recent_calls(self) -> Tokens:
        return self.recent_ops ^ self.recent_stacks
