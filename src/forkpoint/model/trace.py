"""What one rank's dump holds, small enough to keep for 100,000 ranks.

Ops are not kept one by one. A rank's ops in a group are cut into blocks of BLOCK absolute sequence numbers; ranks that
did the same share the same block, stored once in `Tables`. Only the ops at the frontier (last done, first active,
last) are kept whole. Memory therefore grows with what ranks did *differently*, not with ranks times entries.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forkpoint.model.op import Op, Signature, Stack

BLOCK = 128
"""Sequence numbers per block: small enough to look through at once, large enough that keys cost little."""
RECENT = 64
"""Ops per group whose creation times are kept: enough to see the pace before a hang, whatever the buffer size."""

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


@dataclass(frozen=True, slots=True)
class Track:
    """The ops one rank issued in one order: a group's collectives, or one direction of a channel."""

    count: int
    first_seq: int
    last_seq: int
    from_start: bool
    """The ring buffer still holds the first op; otherwise what came before `first_seq` is unknown."""
    blocks: tuple[int, ...]
    """Keys into Tables.blocks, ascending."""
    last_done: Op | None
    first_active: Op | None
    """The earliest op that is not done and after which none is done."""
    last: Op
    recent_seqs: Ints
    recent_created_ns: Ints
    longest_pause_seq: int
    longest_pause_ns: int
    """The op before which this rank paused longest, however long ago, and for how long."""


@dataclass(frozen=True, slots=True)
class Volumes:
    """Elements sent and received in all_to_all, whose sizes may differ by rank but must balance over the group."""

    seqs: Ints
    sent: Ints
    received: Ints


@dataclass(frozen=True, slots=True)
class GroupTrace:
    """One group as one rank saw it."""

    name: str
    desc: str
    members: tuple[int, ...] | None
    """None: the dump does not say."""
    collectives: Track | None
    volumes: Volumes | None
    last_enqueued: int | None
    last_completed: int | None
    """From pg_status. Collectives and P2P share these counters, so they say something only where there is no P2P."""


@dataclass(frozen=True, slots=True)
class ChannelTrace:
    """One end of a channel: the messages this rank sent to, or received from, one peer in one group."""

    name: str
    desc: str
    members: tuple[int, ...] | None
    source: int
    destination: int
    """Global ranks."""
    messages: Track


@dataclass(frozen=True, slots=True)
class RankTrace:
    rank: int
    file: str
    schema: str
    comm_lib: str
    """`nccl`, `gloo`, ... as the entries say; "" without entries."""
    entries: int
    cut: str | None
    """Why the entries end early; None for a whole dump."""
    world: tuple[int, ...] | None
    """Members of the default group, if the dump states them."""
    groups: tuple[GroupTrace, ...]
    channels: tuple[ChannelTrace, ...]
    from_start: bool
    """The ring buffer still holds the rank's very first op."""
    first_ns: int
    last_ns: int
    """The time the entries cover."""
    script: str | None
    """The file at the outer end of the stacks: what was started. Same on all ranks of a job."""
    has_stacks: bool
    timed: bool
    """Start events were recorded, so `scheduled` really means "not started"."""
    recent_records: Ints
    """record_id of the last calls over all groups and channels, oldest first."""
    recent_groups: Ints
    """Index into `groups` of each of them."""
    recent_ops: Tokens
    """What each of them was, in which group. Comparable within this rank only."""
    recent_stacks: Tokens
    """Where each was called from."""

    @property
    def recent_calls(self) -> Tokens:
        return self.recent_ops ^ self.recent_stacks
