"""Checks records and tables from other machines: what passes can be read without errors and matches its keys."""

import struct
from collections.abc import Iterable, Sequence

import numpy as np

from forkpoint.model.entries import BLOCK, read_block, read_keys, read_recent, read_stack
from forkpoint.model.layout import NO_KEY, skip_ints
from forkpoint.model.op import CPP_STACK, NO_STACK, Signature, digest, match_token, message_token, mix, stack_token
from forkpoint.model.records import HEAD, OP, PAUSE, TraceRecord, parts_of
from forkpoint.model.tables import SharedTables, TableKind, block_key

DAMAGE = (ValueError, KeyError, IndexError, struct.error, OverflowError)
"""What reading corrupt bytes raises."""


def verify_tables(tables: SharedTables, known: SharedTables) -> None:
    """Raises one of DAMAGE if an entry cannot be read, refers to a missing one, or does not match its key (it could then
    replace another entry in a join). Entries in `known` were verified before.
    """
    for kind, key, packed in tables.beyond(known):
        if not _FITS[kind](key, packed, tables):
            raise ValueError(f"an entry of kind {kind.name} has a wrong key, or refers to a missing entry")


def _is_text(key: int, packed: bytes, tables: SharedTables) -> bool:
    tables.text(key)  # raises if it is not one
    return digest(packed) == key


def _are_members(key: int, packed: bytes, _tables: SharedTables) -> bool:
    return digest(packed) == key and skip_ints(packed, 0)[1] == len(packed)


def _is_signature(key: int, packed: bytes, tables: SharedTables) -> bool:
    tables.signature(key)  # raises if it is not one
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
    calls_told = tables.entries(TableKind.CALL).keys() >= set(block.match.tolist())
    return in_place and calls_told and tables.entries(TableKind.STACK).keys() >= stacks


def _is_shape(key: int, packed: bytes, tables: SharedTables) -> bool:
    return digest(packed) == key and tables.entries(TableKind.BLOCK).keys() >= set(tables.shape(key).blocks)


def _are_recent(key: int, packed: bytes, _tables: SharedTables) -> bool:
    recent = read_recent(packed)
    return digest(packed) == key and len(recent.groups) == len(recent.matches) == len(recent.stacks) > 0


_FITS = {
    TableKind.TEXT: _is_text,
    TableKind.MEMBERS: _are_members,
    TableKind.SIGNATURE: _is_signature,
    TableKind.CALL: _is_call,
    TableKind.STACK: _is_stack,
    TableKind.BLOCK: _is_block,
    TableKind.SHAPE: _is_shape,
    TableKind.RECENT: _are_recent,
}


def _tokens_of(signatures: Sequence[Signature]) -> set[int]:
    if len(signatures) == 1:
        return {match_token(signatures[0]), message_token(signatures[0])}
    tokens = np.array([match_token(signature) for signature in signatures], dtype=np.uint64)
    return {int(mix(tokens, np.arange(len(tokens))).sum(dtype=np.uint64))}


_MAX_RANK = (1 << 31) - 1


class RecordVerifier:
    """Checks layouts without reading values: it runs for each of 100,000 ranks."""

    def __init__(self, tables: SharedTables) -> None:
        self._tables = tables
        self._texts, self._members = tables.entries(TableKind.TEXT), tables.entries(TableKind.MEMBERS)
        self._recent: set[tuple[int, int, int]] = set()

    def verify(self, record: TraceRecord) -> None:
        """Raises one of DAMAGE if a part is missing or does not fit."""
        data, head = record.data, HEAD.read(record.data)
        parts = parts_of(data)
        if parts.end != len(data):
            raise ValueError("the length of a record does not match its parts")
        named = (head.schema, head.comm_lib, head.script or head.schema, head.cut or head.schema)
        self._require((*named, *struct.unpack_from(f"<{head.threads}Q", data, HEAD.size)), head.world)
        self._verify_recent(head.recent, head.recents, head.groups)
        for at, group in parts.groups:
            self._require((group.name, group.desc), group.members)
            if group.shape:
                self._verify_track(data, at, group.own, group.shape, head.threads)
            if group.volumes:
                _verify_volumes(data, at + group.own, at + group.own + group.volumes)
        for at, channel in parts.channels:
            self._verify_track(data, at, channel.own, channel.shape, head.threads)
            if channel.group >= head.groups:
                raise ValueError("a channel has no group")
            if not all(0 <= rank <= _MAX_RANK for rank in (channel.source, channel.destination)):
                raise ValueError("a channel between impossible ranks")

    def _require(self, texts: Iterable[int], members: int = NO_KEY) -> None:
        if not all(key in self._texts for key in texts) or (members and members not in self._members):
            raise ValueError("a name or a list of members is missing from the tables")

    def _verify_track(self, data: bytes, at: int, size: int, shape_key: int, threads: int) -> None:
        shape = self._tables.shape(shape_key)
        times = at + OP.size * len(shape.ops)
        count, end = skip_ints(data, times + PAUSE.size)
        named = data[at + OP.size - 1 : times : OP.size]
        if count != len(shape.recent_seqs) or end != at + size or end > len(data) or max(named) >= threads:
            raise ValueError("times do not match their ops")

    def _verify_recent(self, key: int, count: int, groups: int) -> None:
        if not key or (key, count, groups) in self._recent:
            return
        recent = self._tables.recent(key).groups
        if len(recent) != count or not 0 <= recent.min() <= recent.max() < groups:
            raise ValueError("recent calls do not match this rank's groups")
        self._recent.add((key, count, groups))


def _verify_volumes(data: bytes, at: int, end: int) -> None:
    counts: list[int] = []
    for _ in range(3):
        count, at = skip_ints(data, at)
        counts.append(count)
    if at != end or end > len(data) or len(set(counts)) > 1:
        raise ValueError("volumes differ in length")
