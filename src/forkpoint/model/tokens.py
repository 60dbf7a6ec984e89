"""Signatures and stacks as 64-bit tokens: equal on every rank, whoever decodes.

The definitions are part of the summary's format: another decoder must give the same numbers.
"""

from hashlib import blake2b
from math import prod

import numpy as np
from numpy.typing import NDArray

from forkpoint.model.op import Signature, Stack

Ints = NDArray[np.int64]
Tokens = NDArray[np.uint64]
NO_STACK = 0
CPP_STACK = 1
# Sizes legitimately differ by rank: splits, and buffers that only the root has.
SIZES_FREE = frozenset(
    {"all_to_all", "all_to_all_single", "all_to_allv", "gather", "gather_single", "scatter", "_broadcast_oop"}
)


def match_token(signature: Signature) -> int:
    """What members of a group must agree on: NCCL and gloo look at element counts, not at shapes."""
    peers = [] if signature.peers is None else [f"{signature.peers[0]}->{signature.peers[1]}"]
    parts = [signature.lib, signature.op, *peers, *_matched_sizes(signature), *_matched_dtypes(signature)]
    return _digest("\x1f".join(parts))


def message_token(signature: Signature) -> int:
    """What sender and receiver of a message must agree on."""
    sizes = signature.input_sizes or signature.output_sizes
    dtypes = signature.input_dtypes or signature.output_dtypes
    return _digest("\x1f".join(["p2p", *(str(prod(s)) for s in sizes), *dtypes]))


def stack_token(stack: Stack) -> int:
    if not stack:
        return CPP_STACK
    return _digest("\x1e".join(f"{f.name}\x1f{f.filename}\x1f{f.line}" for f in stack))


def mix(tokens: Tokens, seqs: Ints) -> Tokens:
    """Tokens bound to their positions, so that their sum identifies a run whatever order it is summed in."""
    return _splitmix(tokens ^ _splitmix(seqs.astype(np.uint64)))


def numel(sizes: tuple[tuple[int, ...], ...]) -> int:
    return sum(prod(s) for s in sizes)


def _matched_sizes(signature: Signature) -> list[str]:
    if signature.op in SIZES_FREE:
        return []
    outputs = [str(prod(s)) for s in signature.output_sizes]
    if signature.op == "all_gather" and len(set(outputs)) > 1:
        return ["per-peer", *outputs]  # a list of unequal tensors: every rank must expect the same list
    return [*(str(prod(s)) for s in signature.input_sizes), "->", *outputs]


def _matched_dtypes(signature: Signature) -> tuple[str, ...]:
    # The root alone has an output in gather and an input in scatter.
    return signature.output_dtypes if signature.op == "scatter" else signature.input_dtypes


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _splitmix(x: Tokens) -> Tokens:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
