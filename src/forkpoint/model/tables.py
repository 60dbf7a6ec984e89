"""Values that ranks share, stored once, by kind and key: kept as bytes, read on demand.

Keys are digests of the values, so joining the tables of two nodes is a union. Several calls may have the same key, since
it leaves out sizes that may differ; of these the one with the smallest bytes is kept, so that the order of reading does
not matter.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum

import numpy as np

from forkpoint.model.entries import (
    Block,
    RecentCalls,
    Tables,
    TrackShape,
    pack_block,
    pack_keys,
    pack_signature,
    pack_stack,
    read_block,
    read_keys,
    read_recent,
    read_shape,
    read_signature,
    read_stack,
)
from forkpoint.model.layout import Reader, as_range, pack_ints
from forkpoint.model.op import CPP_STACK, Signature, Stack, digest, match_token, message_token, mix, stack_token

_ENTRY = struct.Struct("<BQI")


class TableKind(IntEnum):
    TEXT = 1
    MEMBERS = 2
    SIGNATURE = 3
    CALL = 4
    STACK = 5
    BLOCK = 6
    SHAPE = 7
    RECENT = 8


_KINDS = {kind.value: kind for kind in TableKind}


def block_key(block: Block) -> int:
    """A sum over its slots, so that their order does not matter."""
    parts = (
        mix(block.match, block.seqs) + mix(block.stack, ~block.seqs) + mix(block.epoch.astype(np.uint64), block.seqs)
    )
    return int(parts.sum(dtype=np.uint64))


class SharedTables:
    """Grows while dumps are read or summaries joined."""

    def __init__(self) -> None:
        self._entries: dict[TableKind, dict[int, bytes]] = {kind: {} for kind in TableKind}
        self._match: dict[Signature, int] = {}
        self._message: dict[Signature, int] = {}
        self._stack: dict[Stack, int] = {}
        self._member_keys: dict[tuple[int, ...], int] = {}
        self._texts: dict[int, str] = {}
        self._members: dict[int, tuple[int, ...]] = {}
        self._ranks: dict[int, int] = {}
        """Interns ranks: the member lists of 100,000 ranks together hold many times that number."""
        self._signatures: dict[int, Signature] = {}
        self._stacks: dict[int, Stack] = {CPP_STACK: ()}
        self._shapes: dict[int, TrackShape] = {}
        self._recent: tuple[int, RecentCalls] | None = None
        self._fresh: list[tuple[TableKind, int]] = []

    # ----------------------------------------------------------------------------------------------- adding

    def match(self, signature: Signature) -> int:
        token = self._match.get(signature)
        if token is None:
            token = self._match[signature] = match_token(signature)
            self.call(token, (signature,))
        return token

    def message(self, signature: Signature) -> int:
        token = self._message.get(signature)
        if token is None:
            token = self._message[signature] = message_token(signature)
            self.call(token, (signature,))
        return token

    def call(self, token: int, signatures: Sequence[Signature]) -> None:
        """Stores an example call for a token."""
        self.add(TableKind.CALL, token, pack_keys([self.signature_key(s) for s in signatures]))

    def signature_key(self, signature: Signature) -> int:
        return self._keep(TableKind.SIGNATURE, pack_signature(signature))

    def stack(self, stack: Stack) -> int:
        token = self._stack.get(stack)
        if token is None:
            token = self._stack[stack] = stack_token(stack)
            if token != CPP_STACK:
                self.add(TableKind.STACK, token, pack_stack(stack))
        return token

    def block(self, block: Block) -> int:
        key = block_key(block)
        if key not in self._entries[TableKind.BLOCK]:
            self.add(TableKind.BLOCK, key, pack_block(block))
        return key

    def text_key(self, text: str) -> int:
        return self._keep(TableKind.TEXT, text.encode("utf-8", "surrogatepass"))

    def members_key(self, members: tuple[int, ...]) -> int:
        key = self._member_keys.get(members)
        if key is None:
            key = self._member_keys[members] = self._keep(TableKind.MEMBERS, pack_ints(members))
        return key

    def shape_key(self, packed: bytes) -> int:
        return self._keep(TableKind.SHAPE, packed)

    def recent_key(self, packed: bytes) -> int:
        return self._keep(TableKind.RECENT, packed)

    def add(self, kind: TableKind, key: int, packed: bytes) -> None:
        known = self._entries[kind].get(key)
        if known is None or (kind is TableKind.CALL and packed < known):
            self._entries[kind][key] = packed
            self._fresh.append((kind, key))

    def add_stream(self, data: bytes) -> None:
        """Adds entries in the format that `stream` writes."""
        at = 0
        while at < len(data):
            kind, key, size = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size + size
            if at > len(data):
                raise ValueError("entries end early")
            self.add(_KINDS[kind], key, data[at - size : at])

    def join(self, other: "SharedTables") -> None:
        for kind, key, packed in other.beyond(self):
            self.add(kind, key, packed)

    def beyond(self, known: "SharedTables") -> Iterator[tuple[TableKind, int, bytes]]:
        """Entries that `known` lacks, or holds with different bytes."""
        for kind in TableKind:
            theirs = known.entries(kind)
            for key, packed in self._entries[kind].items():
                if theirs.get(key) != packed:
                    yield kind, key, packed

    def _keep(self, kind: TableKind, packed: bytes) -> int:
        key = digest(packed)
        if key not in self._entries[kind]:
            self._entries[kind][key] = packed
            self._fresh.append((kind, key))
        return key

    def take_fresh(self) -> bytes:
        """Entries added since the last call, in the format that `stream` writes."""
        if not self._fresh:
            return b""
        fresh, self._fresh = dict.fromkeys(self._fresh), []
        entries = ((kind, key, self._entries[kind][key]) for kind, key in fresh)
        return b"".join(_ENTRY.pack(kind, key, len(packed)) + packed for kind, key, packed in entries)

    # ---------------------------------------------------------------------------------------------- reading

    def stream(self) -> Iterator[bytes]:
        """Every entry, in an order that does not depend on the order of reading."""
        for kind, known in self._entries.items():
            for key, packed in sorted(known.items()):
                yield _ENTRY.pack(kind, key, len(packed)) + packed

    def entries(self, kind: TableKind) -> Mapping[int, bytes]:
        return self._entries[kind]

    def text(self, key: int) -> str:
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = self._entries[TableKind.TEXT][key].decode("utf-8", "surrogatepass")
        return text

    def members(self, key: int) -> tuple[int, ...]:
        members = self._members.get(key)
        if members is None:
            read = Reader(self._entries[TableKind.MEMBERS][key]).ints().tolist()
            shared: Callable[[int, int], int] = self._ranks.setdefault
            members = self._members[key] = tuple(map(shared, read, read))
        return members

    def belonging(self, key: int) -> range | frozenset[int]:
        """The members, for membership tests: a range for the world and most groups."""
        return as_range(self._entries[TableKind.MEMBERS][key]) or frozenset(self.members(key))

    def signature(self, key: int) -> Signature:
        signature = self._signatures.get(key)
        if signature is None:
            signature = self._signatures[key] = read_signature(self._entries[TableKind.SIGNATURE][key])
        return signature

    def shape(self, key: int) -> TrackShape:
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._read_shape(self._entries[TableKind.SHAPE][key])
        return shape

    def recent(self, key: int) -> RecentCalls:
        if self._recent is None or self._recent[0] != key:  # all of them together would be large
            self._recent = (key, read_recent(self._entries[TableKind.RECENT][key]))
        return self._recent[1]

    def build(self) -> Tables:
        calls = self._entries[TableKind.CALL].items()
        blocks = {key: read_block(data) for key, data in self._entries[TableKind.BLOCK].items()}
        from_cpp = (CPP_STACK,) if any((block.stack == CPP_STACK).any() for block in blocks.values()) else ()
        return Tables(
            signatures={token: tuple(map(self.signature, read_keys(keys))) for token, keys in calls},
            stacks={token: self.stack_behind(token) for token in (*from_cpp, *self._entries[TableKind.STACK])},
            blocks=blocks,
        )

    def _read_shape(self, packed: bytes) -> TrackShape:
        return read_shape(packed, self.signature, self.stack_behind)

    def stack_behind(self, token: int) -> Stack:
        stack = self._stacks.get(token)
        if stack is None:
            stack = self._stacks[token] = read_stack(self._entries[TableKind.STACK][token])
        return stack
