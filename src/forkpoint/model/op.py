"""One communication call as one rank recorded it, the names of ops, and the tokens by which calls are compared."""

import re
from enum import StrEnum
from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


class OpState(StrEnum):
    """How far an op got: PyTorch's three states, and two that we infer."""

    SCHEDULED = "scheduled"
    """Issued. Without start events (the default), a kernel that is running reads `scheduled`, too."""
    STARTED = "started"
    COMPLETED = "completed"
    ENTERING = "entering"
    """Recorded, but its rank is still inside the enqueue: it has not started, whatever the dump says."""
    ABORTED = "aborted"
    """The dump says `completed`, but only because its communicator was torn down."""


class Frame(Struct, frozen=True):
    name: str
    filename: str
    line: int


Stack = tuple[Frame, ...]
"""Innermost frame first. Empty when the caller was C++ (DDP's reducer)."""


class Signature(Struct, frozen=True):
    """What was called, as recorded: equal calls have equal signatures."""

    lib: str
    """`nccl`, `gloo`, ..."""
    op: str
    """PyTorch's name without library and peers: `all_reduce`, `send`, `coalesced`."""
    peers: tuple[int, int] | None
    """(source, destination) as group ranks, for send and recv."""
    input_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_sizes: tuple[tuple[int, ...], ...]
    output_dtypes: tuple[str, ...]

    @property
    def is_marker(self) -> bool:
        """The closing entry of a coalesced group: it carries the group's state and no sizes."""
        return self.op == "coalesced" or (self.op.endswith("_coalesced") and not self.input_sizes)


class Op(Struct, frozen=True):
    """One recorded call with everything its dump holds about it."""

    rank: int
    record_id: int
    """Order of this rank's calls over all groups. Not comparable between ranks."""
    seq: int
    """Position in the group's collectives, or the message's number on its channel."""
    batch: int
    """Equal for messages that were issued together: they finish together or not at all. 0 for collectives."""
    signatures: tuple[Signature, ...]
    """One; several where calls were coalesced into one."""
    state: OpState
    retired: bool
    created_ns: int
    since_previous_ns: int | None
    """Time since this rank issued its previous op in the same group or channel. None: the dump does not hold that one."""
    completed_ns: int
    """When a CPU thread noticed that it was done; 0 = never."""
    timeout_ms: int
    stack: Stack | None
    """None: the dump was made without stacks."""
    thread: str


# ---------------------------------------------------------------------------------------------------------------------
# Names of ops as recorders write them: library, operation and peers in one string.

SYNCHRONISING = frozenset({
    "all_reduce",
    "all_reduce_barrier",
    "allreduce_coalesced",
    "all_gather",
    "_all_gather_base",
    "all_gather_into_tensor_coalesced",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
    "all_to_all",
    "barrier",
})  # fmt: skip
"""When one of these is done on one member, every member has issued it. In other ops the root may finish alone."""

_MESSAGE = re.compile(r"(send|recv) ([0-9]{1,9})(->|<-)([0-9]{1,9}|\?)")


def split_name(profiling_name: str) -> tuple[str, str, tuple[int, int] | None]:
    """(lib, op, peers): "nccl:recv 1<-0" -> ("nccl", "recv", (0, 1)), always (source, destination)."""
    lib, colon, op = profiling_name.partition(":")
    if not colon:
        lib, op = "", profiling_name
    message = _MESSAGE.fullmatch(op)
    if message is None:
        return lib, op, None
    op, own, arrow, other = message.groups()
    if other == "?":
        return lib, op, None
    return lib, op, (int(own), int(other)) if arrow == "->" else (int(other), int(own))


# ---------------------------------------------------------------------------------------------------------------------
# Signatures and stacks as 64-bit tokens: the same on every rank and from every decoder.
#
# The definitions are part of the summary's format: another decoder must produce the same numbers.

Ints = NDArray[np.int64]
Tokens = NDArray[np.uint64]
NO_STACK = 0
CPP_STACK = 1
# Ops whose sizes may differ by rank: splits, and buffers that only the root has.
SIZES_FREE = frozenset(
    {"all_to_all", "all_to_all_single", "all_to_allv", "gather", "gather_single", "scatter", "_broadcast_oop"}
)


def match_token(signature: Signature) -> int:
    """What members of a group must agree on. Element counts, not shapes: NCCL and gloo do not know shapes."""
    peers = [] if signature.peers is None else [f"{signature.peers[0]}->{signature.peers[1]}"]
    parts = [signature.lib, signature.op, *peers, *_matched_sizes(signature), *_matched_dtypes(signature)]
    return _token("\x1f".join(parts))


def message_token(signature: Signature) -> int:
    """What sender and receiver of a message must agree on."""
    sizes = signature.input_sizes or signature.output_sizes
    dtypes = signature.input_dtypes or signature.output_dtypes
    return _token("\x1f".join(["p2p", *(str(prod(s)) for s in sizes), *dtypes]))


def stack_token(stack: Stack) -> int:
    if not stack:
        return CPP_STACK
    return _token("\x1e".join(f"{f.name}\x1f{f.filename}\x1f{f.line}" for f in stack))


def mix(tokens: Tokens, seqs: Ints) -> Tokens:
    """Tokens combined with their positions, so that their sum identifies a run of ops in any order of summation."""
    return _splitmix(tokens ^ _splitmix(seqs.astype(np.uint64)))


def numel(sizes: tuple[tuple[int, ...], ...]) -> int:
    return sum(prod(s) for s in sizes)


def _matched_sizes(signature: Signature) -> list[str]:
    if signature.op in SIZES_FREE:
        return []
    outputs = [str(prod(s)) for s in signature.output_sizes]
    if signature.op == "all_gather" and len(set(outputs)) > 1:
        return ["per-peer", *outputs]  # tensors of different sizes: every rank must expect the same list
    return [*(str(prod(s)) for s in signature.input_sizes), "->", *outputs]


def _matched_dtypes(signature: Signature) -> tuple[str, ...]:
    # Only the root has an output in gather and an input in scatter.
    return signature.output_dtypes if signature.op == "scatter" else signature.input_dtypes


def _token(text: str) -> int:
    return digest(text.encode("utf-8", "surrogatepass"))


def digest(data: bytes) -> int:
    from hashlib import blake2b  # noqa: PLC0415 - loads OpenSSL, and dumps that are decoded in Rust have their digests

    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def _splitmix(x: Tokens) -> Tokens:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
