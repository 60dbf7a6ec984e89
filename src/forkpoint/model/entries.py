"""Packs and reads the values that many ranks share: calls, stacks, blocks of ops, shapes of tracks.

Ops are not kept one by one. A rank's ops in a group are cut into blocks of BLOCK absolute sequence numbers; ranks that
did the same share the block. Only the last done, the first active and the last op are kept whole. So memory grows with
what ranks did *differently*, not with ranks times entries.
"""

import struct
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from forkpoint.model.layout import I64, U8, U32, U64, Reader, pack_ints, pack_text, pack_tokens
from forkpoint.model.op import Frame, Ints, OpState, Signature, Stack, Tokens, mix

BLOCK = 128
"""Sequence numbers per block: small enough to search quickly, large enough that the keys take little space."""

STATES = tuple(OpState)
_ENDS = struct.Struct("<Iqq")
_ROLES = struct.Struct("<4B")
_PLACE = struct.Struct("<qq")


class Block(Struct, frozen=True):
    """A run of slots as at least one rank recorded it."""

    seqs: Ints
    match: Tokens
    """What members of a group must agree on in a slot: operation, sizes where they must fit, dtype."""
    stack: Tokens
    """Where it was called from; 0 = the dump has no stacks, 1 = called from C++."""
    epoch: Ints
    """For messages: how many collectives the group had done when it was issued. 0 for collectives."""


class Tables(Struct, frozen=True):
    """What the stages look up by key."""

    signatures: dict[int, tuple[Signature, ...]]
    """An example of the call behind each match token."""
    stacks: dict[int, Stack]
    blocks: dict[int, Block]


class OpShape(Struct, frozen=True):
    """An op without what differs by rank: times, thread and record number."""

    seq: int
    batch: int
    signatures: tuple[Signature, ...]
    state: OpState
    retired: bool
    timeout_ms: int
    stack: Stack | None


class TrackShape(Struct, frozen=True):
    """A track without times. Ranks that did the same share it."""

    count: int
    first_seq: int
    last_seq: int
    from_start: bool
    blocks: tuple[int, ...]
    recent_seqs: Ints
    last_done: int | None
    first_active: int | None
    last: int
    """Indexes into ops."""
    ops: tuple[OpShape, ...]

    @property
    def active_op(self) -> OpShape | None:
        return None if self.first_active is None else self.ops[self.first_active]


class RecentCalls(Struct, frozen=True):
    """The last calls of a rank over all its groups, without their record numbers."""

    groups: Ints
    matches: Tokens
    ops: Tokens
    """The operation and its group."""
    stacks: Tokens


def pack_keys(keys: Sequence[int]) -> bytes:
    return U32.pack(len(keys)) + struct.pack(f"<{len(keys)}Q", *keys)


def read_keys(data: bytes) -> tuple[int, ...]:
    reader = Reader(data)
    keys = reader.keys(reader.number(U32))
    reader.end()
    return keys


def pack_signature(signature: Signature) -> bytes:
    peers = b"\0" if signature.peers is None else b"\1" + _PLACE.pack(*signature.peers)
    return b"".join([
        pack_text(signature.lib),
        pack_text(signature.op),
        peers,
        _pack_sizes(signature.input_sizes),
        _pack_texts(signature.input_dtypes),
        _pack_sizes(signature.output_sizes),
        _pack_texts(signature.output_dtypes),
    ])  # fmt: skip


def read_signature(data: bytes) -> Signature:
    reader = Reader(data)
    lib, op = reader.text(), reader.text()
    peers = reader.take(_PLACE) if reader.number(U8) else None
    inputs = _read_sizes(reader), _read_texts(reader)
    outputs = _read_sizes(reader), _read_texts(reader)
    reader.end()
    return Signature(lib, op, None if peers is None else (peers[0], peers[1]), *inputs, *outputs)


def _pack_sizes(sizes: Sequence[Sequence[int]]) -> bytes:
    return U32.pack(len(sizes)) + b"".join(U32.pack(len(s)) + struct.pack(f"<{len(s)}q", *s) for s in sizes)


def _read_sizes(reader: Reader) -> tuple[tuple[int, ...], ...]:
    return tuple(_read_size(reader) for _ in range(reader.number(U32)))


def _read_size(reader: Reader) -> tuple[int, ...]:
    size = reader.number(U32)
    return struct.unpack(f"<{size}q", reader.bytes(8 * size))


def _pack_texts(texts: Sequence[str]) -> bytes:
    return U32.pack(len(texts)) + b"".join(map(pack_text, texts))


def _read_texts(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.text() for _ in range(reader.number(U32)))


def pack_stack(stack: Stack) -> bytes:
    frames = (pack_text(f.name) + pack_text(f.filename) + I64.pack(f.line) for f in stack)
    return U32.pack(len(stack)) + b"".join(frames)


def read_stack(data: bytes) -> Stack:
    reader = Reader(data)
    stack = tuple(Frame(reader.text(), reader.text(), reader.number(I64)) for _ in range(reader.number(U32)))
    reader.end()
    return stack


def pack_block(block: Block) -> bytes:
    return pack_ints(block.seqs) + pack_tokens(block.match) + pack_tokens(block.stack) + pack_ints(block.epoch)


def read_block(data: bytes) -> Block:
    reader = Reader(data)
    block = Block(reader.ints(), reader.tokens(), reader.tokens(), reader.ints())
    reader.end()
    if not len(block.seqs) == len(block.match) == len(block.stack) == len(block.epoch) > 0:
        raise ValueError("columns of a block differ in length")
    return block


def pack_recent(groups: Ints, match: Tokens, stacks: Tokens) -> bytes:
    return pack_ints(groups) + pack_tokens(match) + pack_tokens(stacks)


def read_recent(data: bytes) -> RecentCalls:
    reader = Reader(data)
    groups, match, stacks = reader.ints(), reader.tokens(), reader.tokens()
    reader.end()
    return RecentCalls(groups, match, mix(match, groups), stacks)


def pack_shape(shape: TrackShape, signature_key: Callable[[Signature], int], stack: Callable[[Stack], int]) -> bytes:
    roles = (0 if role is None else role + 1 for role in (shape.last_done, shape.first_active, shape.last))
    return b"".join([
        _ENDS.pack(shape.count, shape.first_seq, shape.last_seq),
        U8.pack(shape.from_start),
        pack_keys(shape.blocks),
        pack_ints(shape.recent_seqs),
        _ROLES.pack(*roles, len(shape.ops)),
        *(_pack_op(op, signature_key, stack) for op in shape.ops),
    ])  # fmt: skip


def _pack_op(op: OpShape, signature_key: Callable[[Signature], int], stack: Callable[[Stack], int]) -> bytes:
    called = b"\0" if op.stack is None else b"\1" + U64.pack(stack(op.stack))
    return b"".join([
        _PLACE.pack(op.seq, op.batch),
        pack_keys([signature_key(s) for s in op.signatures]),
        U8.pack(STATES.index(op.state)),
        U8.pack(op.retired),
        I64.pack(op.timeout_ms),
        called,
    ])  # fmt: skip


def read_shape(data: bytes, signature: Callable[[int], Signature], stack: Callable[[int], Stack]) -> TrackShape:
    reader = Reader(data)
    count, first_seq, last_seq = reader.take(_ENDS)
    from_start = bool(reader.number(U8))
    blocks = reader.keys(reader.number(U32))
    recent_seqs = reader.ints()
    *roles, size = reader.take(_ROLES)
    ops = tuple(_read_op(reader, signature, stack) for _ in range(size))
    reader.end()
    last_done, first_active, last = (role - 1 if role else None for role in roles)
    if last is None or max(roles) > size or not blocks:
        raise ValueError("a track lacks its last op")
    return TrackShape(count, first_seq, last_seq, from_start, blocks, recent_seqs, last_done, first_active, last, ops)


def _read_op(reader: Reader, signature: Callable[[int], Signature], stack: Callable[[int], Stack]) -> OpShape:
    seq, batch = reader.take(_PLACE)
    signatures = tuple(map(signature, reader.keys(reader.number(U32))))
    state, retired = STATES[reader.number(U8)], bool(reader.number(U8))
    timeout_ms = reader.number(I64)
    called = stack(reader.number(U64)) if reader.number(U8) else None
    if not signatures:
        raise ValueError("an op has no call")
    return OpShape(seq, batch, signatures, state, retired, timeout_ms, called)


def no_recent_calls() -> RecentCalls:
    nothing = np.zeros(0, np.uint64)
    return RecentCalls(np.zeros(0, np.int64), nothing, nothing, nothing)
