"""Whether what somebody else packed holds together: after this, reading it raises nothing, and says what its keys say."""

import struct
from collections.abc import Iterable, Sequence

import numpy as np

from forkpoint.model.op import Signature
from forkpoint.model.tokens import CPP_STACK, NO_STACK, match_token, message_token, mix, stack_token
from forkpoint.model.trace import BLOCK
from forkpoint.packed.entries import read_block, read_keys, read_recent, read_stack
from forkpoint.packed.layout import U64, digest, skip_ints
from forkpoint.packed.records import CHANNEL, GROUP, HEAD, NO_KEY, OWN_OP, PAUSE
from forkpoint.packed.tables import Kind, SharedTables, block_key
from forkpoint.packed.trace import Record

DAMAGE = (ValueError, KeyError, IndexError, struct.error, OverflowError)
"""What reading bytes that do not fit together raises."""


def verify_tables(tables: SharedTables, known: SharedTables) -> None:
    """Raises one of DAMAGE where an entry cannot be read, refers to what is not there, or is not what its key stands for:
    it could take another's place in a join. What is known already was verified when it came.
    """
    for kind, key, packed in tables.beyond(known):
        if not _FITS[kind](key, packed, tables):
            raise ValueError(f"an entry of kind {kind.name} under another's key, or without what belongs to it")


def _is_text(key: int, packed: bytes, tables: SharedTables) -> bool:
    tables.text(key)  # raises where it is none
    return digest(packed) == key


def _are_members(key: int, packed: bytes, _tables: SharedTables) -> bool:
    return digest(packed) == key and skip_ints(packed, 0)[1] == len(packed)


def _is_signature(key: int, packed: bytes, tables: SharedTables) -> bool:
    tables.signature(key)  # raises where it is none
    return digest(packed) == key


def _is_call(key: int, packed: bytes, tables: SharedTables) -> bool:
    return key in _tokens_of([tables.signature(signature) for signature in read_keys(packed)])


def _is_stack(key: int, packed: bytes, _tables: SharedTables) -> bool:
    return stack_token(read_stack(packed)) == key


def _is_block(key: int, packed: bytes, tables: SharedTables) -> bool:
    block = read_block(packed)
    numbers = block.seqs // BLOCK
    in_place = not (np.diff(block.seqs) <= 0).any() and numbers[0] == numbers[-1] and block_key(block) == key
    stacks = set(block.stack.tolist()) - {NO_STACK, CPP_STACK}
    calls_told = tables.entries(Kind.CALL).keys() >= set(block.match.tolist())
    return in_place and calls_told and tables.entries(Kind.STACK).keys() >= stacks


def _is_shape(key: int, packed: bytes, tables: SharedTables) -> bool:
    return digest(packed) == key and tables.entries(Kind.BLOCK).keys() >= set(tables.shape(key).blocks)


def _are_recent(key: int, packed: bytes, _tables: SharedTables) -> bool:
    recent = read_recent(packed)
    return digest(packed) == key and len(recent.groups) == len(recent.matches) == len(recent.stacks) > 0


_FITS = {
    Kind.TEXT: _is_text,
    Kind.MEMBERS: _are_members,
    Kind.SIGNATURE: _is_signature,
    Kind.CALL: _is_call,
    Kind.STACK: _is_stack,
    Kind.BLOCK: _is_block,
    Kind.SHAPE: _is_shape,
    Kind.RECENT: _are_recent,
}


def _tokens_of(signatures: Sequence[Signature]) -> set[int]:
    if len(signatures) == 1:
        return {match_token(signatures[0]), message_token(signatures[0])}
    tokens = np.array([match_token(signature) for signature in signatures], dtype=np.uint64)
    return {int(mix(tokens, np.arange(len(tokens))).sum(dtype=np.uint64))}


class RecordVerifier:
    """Goes by the layouts, not through the readers: it is done for every rank of 100,000."""

    def __init__(self, tables: SharedTables) -> None:
        self._tables = tables
        self._texts, self._members = tables.entries(Kind.TEXT), tables.entries(Kind.MEMBERS)
        self._recent: set[tuple[int, int, int]] = set()

    def verify(self, record: Record) -> None:
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
        if not all(key in self._texts for key in texts) or (members and members not in self._members):
            raise ValueError("a name or members that are not told")

    def _verify_track(self, data: bytes, at: int, size: int, shape_key: int, threads: int) -> None:
        shape = self._tables.shape(shape_key)
        times = at + OWN_OP.size * len(shape.ops)
        count, end = skip_ints(data, times + PAUSE.size)
        named = data[at + OWN_OP.size - 1 : times : OWN_OP.size]
        if count != len(shape.recent_seqs) or end != at + size or end > len(data) or max(named) >= threads:
            raise ValueError("times that do not fit their ops")

    def _verify_recent(self, key: int, count: int, groups: int) -> None:
        if not key or (key, count, groups) in self._recent:
            return
        recent = self._tables.recent(key).groups
        if len(recent) != count or not 0 <= recent.min() <= recent.max() < groups:
            raise ValueError("recent calls that are none of this rank's")
        self._recent.add((key, count, groups))


def _verify_volumes(data: bytes, at: int, end: int) -> None:
    counts: list[int] = []
    for _ in range(3):
        count, at = skip_ints(data, at)
        counts.append(count)
    if at != end or end > len(data) or len(set(counts)) > 1:
        raise ValueError("volumes of unequal length")
