"""Queries on aligned tracks: what each rank issued at a position, and where ranks differ."""

from collections.abc import Iterable
from typing import Literal

import numpy as np
from msgspec import Struct

from forkpoint.model.entries import BLOCK, Block, Tables
from forkpoint.model.op import Ints, Tokens
from forkpoint.model.trace import Track

Column = Literal["match", "stack", "epoch"]


class SlotSequence(Struct, frozen=True):
    """A track as arrays indexed by position: index 0 is `first`. Positions that the dump does not hold have match 0."""

    first: int
    match: Tokens
    stack: Tokens
    epoch: Ints

    def __len__(self) -> int:
        return len(self.match)

    def shows(self, seq: int) -> bool:
        """Whether the arrays cover this position; they do not cover what lies before a jump in the numbers."""
        return 0 <= seq - self.first < len(self.match)

    @property
    def calls(self) -> Tokens:
        """What was called and from where, as one token."""
        return self.match * np.uint64(0x9E3779B97F4A7C15) ^ self.stack


def sequence(track: Track, tables: Tables) -> SlotSequence:
    blocks = [tables.blocks[key] for key in track.blocks]
    seqs = np.concatenate([b.seqs for b in blocks])
    # A ring buffer holds consecutive ops. If the numbers in a broken file jump, what lies before the jump is left out.
    first = max(track.first_seq, track.last_seq - 2 * len(seqs) - BLOCK)
    kept = seqs >= first
    at, size = seqs[kept] - first, track.last_seq - first + 1
    match, stack, epoch = np.zeros(size, np.uint64), np.zeros(size, np.uint64), np.zeros(size, np.int64)
    match[at] = np.concatenate([b.match for b in blocks])[kept]
    stack[at] = np.concatenate([b.stack for b in blocks])[kept]
    epoch[at] = np.concatenate([b.epoch for b in blocks])[kept]
    return SlotSequence(first, match, stack, epoch)


def token_at(track: Track, seq: int, tables: Tables, column: Column = "match") -> int | None:
    """The token of a track at `seq`; None if it holds none."""
    for key in track.blocks:
        block = tables.blocks[key]
        if block.seqs[0] // BLOCK == seq // BLOCK:
            found = np.flatnonzero(block.seqs == seq)
            return int(getattr(block, column)[found[0]]) if found.size else None
    return None


def differing_seqs(tracks: Iterable[Track], tables: Tables, column: Column = "match") -> Ints:
    """Positions at which two tracks hold different tokens. Ranks that share a block are compared once."""
    by_number: dict[int, set[int]] = {}
    for track in tracks:
        for key in track.blocks:
            by_number.setdefault(int(tables.blocks[key].seqs[0]) // BLOCK, set()).add(key)
    parts = [
        _differing(number, [tables.blocks[key] for key in keys], column)
        for number, keys in sorted(by_number.items())
        if len(keys) > 1
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _differing(number: int, blocks: list[Block], column: Column) -> Ints:
    low = np.full(BLOCK, np.iinfo(np.uint64).max, np.uint64)
    high = np.zeros(BLOCK, np.uint64)
    for block in blocks:
        at = block.seqs - number * BLOCK
        values = getattr(block, column).astype(np.uint64)
        low[at] = np.minimum(low[at], values)
        high[at] = np.maximum(high[at], values)
    return np.flatnonzero(low < high) + number * BLOCK
