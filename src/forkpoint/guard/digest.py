"""What one rank called, small enough to send at every look: block signatures over absolute seq, as the engine's.

Of each group the last calls are told one by one, and older ones as sums over blocks of BLOCK sequence numbers. Ranks
can be compared wherever they are: a seq, or a block, that two of them send must be equal.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forkpoint.guard.recent import Recent
from forkpoint.model.tokens import mix
from forkpoint.model.trace import BLOCK

TAIL: Final = 64
"""Calls told one by one: more than most jobs issue between two digests, in half a kilobyte."""
BLOCKS: Final = 16
"""Blocks told: what torch's ring buffer holds by default (2,000 calls)."""


@dataclass(slots=True)
class GroupDigest:
    last_seq: int = 0
    timeout_s: float = 0.0
    tail: "OrderedDict[int, int]" = field(default_factory=OrderedDict)
    """Token by seq; calls that were coalesced share a seq, and their tokens are added."""
    blocks: "OrderedDict[int, int]" = field(default_factory=OrderedDict)
    """Signature by number of the block. Only blocks that were seen from their first seq to their last."""
    open_from: int | None = None
    """The block being filled, if it was seen from its first seq on."""
    open_tokens: "OrderedDict[int, int]" = field(default_factory=OrderedDict)


class Digest:
    def __init__(self) -> None:
        self.groups: dict[str, GroupDigest] = {}
        self.names: dict[int, str] = {}
        """Group by pg_id, the number that the recorder's counters go by."""
        self.seen = -1
        """The newest record that was read."""
        self.missed = 0
        """How often calls left the ring buffer before they were read."""

    def add(self, recent: Recent) -> None:
        if not recent.complete:
            self.missed += self.seen >= 0
            for group in self.groups.values():
                group.open_from = None
        for call in recent.calls:
            if call.pg_id not in self.names:
                self._meet(call.pg_id, call.group)
            group = self.groups.setdefault(call.group, GroupDigest())
            group.timeout_s = call.timeout_s
            _add(group, call.seq, call.token, whole=recent.complete)
        self.seen = max(self.seen, recent.newest)

    def _meet(self, pg_id: int, name: str) -> None:
        """A group that was taken down and made again starts anew: same name, same numbers, other calls."""
        for earlier in [known for known, group in self.names.items() if group == name]:
            del self.names[earlier]
            self.groups.pop(name, None)
        self.names[pg_id] = name


def _add(group: GroupDigest, seq: int, token: int, *, whole: bool) -> None:
    block = seq // BLOCK
    if group.open_from != block:
        if group.open_from is not None and block > group.open_from:
            _close(group, group.open_from)
        begins = whole and (seq <= 1 if group.last_seq == 0 else group.last_seq < block * BLOCK)
        group.open_from = block if begins else None
        group.open_tokens.clear()
    if group.open_from is not None:
        group.open_tokens[seq] = (group.open_tokens.get(seq, 0) + token) % 2**64
    group.tail[seq] = (group.tail.get(seq, 0) + token) % 2**64
    if len(group.tail) > TAIL:
        group.tail.popitem(last=False)
    group.last_seq = max(group.last_seq, seq)


def _close(group: GroupDigest, block: int) -> None:
    seqs = np.fromiter(group.open_tokens.keys(), dtype=np.int64)
    tokens = np.fromiter(group.open_tokens.values(), dtype=np.uint64)
    group.blocks[block] = int(mix(tokens, seqs).sum(dtype=np.uint64))
    if len(group.blocks) > BLOCKS:
        group.blocks.popitem(last=False)
