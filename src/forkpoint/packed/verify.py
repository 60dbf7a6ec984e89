"""Whether what somebody else packed holds together: after this, reading it raises nothing, and says what its keys say."""

import struct
from collections.abc import Iterable

import numpy as np

from forkpoint.model.op import Signature
from forkpoint.model.tokens import NO_STACK, match_token, message_token, mix, stack_token
from forkpoint.model.trace import BLOCK, Block, Tables
from forkpoint.packed.layout import U64, digest, skip_ints
from forkpoint.packed.records import CHANNEL, GROUP, HEAD, NO_KEY, OWN_OP, PAUSE
from forkpoint.packed.tables import Kind, SharedTables, block_key
from forkpoint.packed.trace import PackedRecord

DAMAGE = (ValueError, KeyError, IndexError, struct.error, OverflowError)
"""What reading bytes that do not fit together raises."""
_BY_DIGEST = (Kind.TEXT, Kind.MEMBERS, Kind.SIGNATURE, Kind.SHAPE, Kind.RECENT)


def verify_tables(tables: SharedTables) -> None:
    """Raises one of DAMAGE where an entry is not what its key stands for: it could take another's place in a join."""
    for kind in _BY_DIGEST:
        if any(digest(packed) != key for key, packed in tables.entries(kind).items()):
            raise ValueError(f"an entry of kind {kind.name} under another's key")
    built = tables.build()
    if any(token not in _tokens_of(signatures) for token, signatures in built.signatures.items()):
        raise ValueError("a call under another's key")
    if any(stack_token(stack) != token for token, stack in built.stacks.items()):
        raise ValueError("a stack under another's key")
    for key, block in built.blocks.items():
        _verify_block(key, block, built)
    if any(not built.blocks.keys() >= set(tables.shape(key).blocks) for key in tables.entries(Kind.SHAPE)):
        raise ValueError("a track of blocks that are not told")


def _verify_block(key: int, block: Block, built: Tables) -> None:
    numbers = block.seqs // BLOCK
    if block_key(block) != key or (np.diff(block.seqs) <= 0).any() or numbers[0] != numbers[-1]:
        raise ValueError("a block under another's key")
    stacks = set(block.stack.tolist()) - {NO_STACK}
    if not (built.signatures.keys() >= set(block.match.tolist()) and built.stacks.keys() >= stacks):
        raise ValueError("a block of calls that are not told")


def _tokens_of(signatures: tuple[Signature, ...]) -> set[int]:
    if len(signatures) == 1:
        return {match_token(signatures[0]), message_token(signatures[0])}
    tokens = np.array([match_token(signature) for signature in signatures], dtype=np.uint64)
    return {int(mix(tokens, np.arange(len(tokens))).sum(dtype=np.uint64))}


class RecordVerifier:
    """Goes by the layouts, not through the readers: it is done for every rank of 100,000."""

    def __init__(self, tables: SharedTables) -> None:
        self._tables = tables
        self._texts = tables.entries(Kind.TEXT).keys()
        self._members = {NO_KEY, *tables.entries(Kind.MEMBERS)}

    def verify(self, record: PackedRecord) -> None:
        """Raises one of DAMAGE where a part is missing."""
        data, head = record.data, HEAD.unpack_from(record.data)
        groups, channels, recents, threads = head[8], head[9], head[10], head[12]
        at = HEAD.size
        named = (key for key in (head[0], head[1], head[2] or head[0], head[3] or head[0]))
        self._require(named, head[4])
        self._require(struct.unpack_from(f"<{threads}Q", data, at))
        self._verify_recent(head[14], recents, groups)
        at += U64.size * threads
        for _ in range(groups):
            name, desc, members, shape, _, _, own, volumes = GROUP.unpack_from(data, at)
            self._require((name, desc), members)
            at += GROUP.size
            if shape:
                self._verify_track(data, at, own, shape, threads)
            at += own + volumes
            if volumes:
                _verify_volumes(data, at - volumes, at)
        for _ in range(channels):
            group, _, _, shape, own = CHANNEL.unpack_from(data, at)
            at += CHANNEL.size
            self._verify_track(data, at, own, shape, threads)
            at += own
            if group >= groups:
                raise ValueError("a channel of no group")
        if at != len(data):
            raise ValueError("a record of another length than its parts")

    def _require(self, texts: Iterable[int], members: int = NO_KEY) -> None:
        if not all(key in self._texts for key in texts) or members not in self._members:
            raise ValueError("a name or members that are not told")

    def _verify_track(self, data: bytes, at: int, size: int, shape_key: int, threads: int) -> None:
        shape = self._tables.shape(shape_key)
        times = at + OWN_OP.size * len(shape.ops)
        count, end = skip_ints(data, times + PAUSE.size)
        named = data[at + OWN_OP.size - 1 : times : OWN_OP.size]
        if count != len(shape.recent_seqs) or end != at + size or end > len(data) or max(named) >= threads:
            raise ValueError("times that do not fit their ops")

    def _verify_recent(self, key: int, count: int, groups: int) -> None:
        if not key:
            return
        recent = self._tables.recent(key)
        if not len(recent.groups) == len(recent.matches) == len(recent.stacks) == count > 0:
            raise ValueError("recent calls of unequal length")
        if not 0 <= recent.groups.min() <= recent.groups.max() < groups:
            raise ValueError("a recent call in no group")


def _verify_volumes(data: bytes, at: int, end: int) -> None:
    counts: list[int] = []
    for _ in range(3):
        count, at = skip_ints(data, at)
        counts.append(count)
    if at != end or end > len(data) or len(set(counts)) > 1:
        raise ValueError("volumes of unequal length")
