"""Recorded calls in words."""

from dataclasses import replace

from forkpoint.cohorts import frontier_op, issued
from forkpoint.model.op import Op, Signature
from forkpoint.model.tokens import SIZES_FREE
from forkpoint.model.trace import Tables, Track, Volumes

_MAX_SIZES = 3


def tell_op(op: Op) -> str:
    """`all_reduce [71178] Float, scheduled`."""
    return f"{tell_call(op.signatures)}, {op.state}"


def tell_call(signatures: tuple[Signature, ...]) -> str:
    first = signatures[0]
    more = f" and {len(signatures) - 1} more calls in one" if len(signatures) > 1 else ""
    sizes = tell_sizes(first.input_sizes or first.output_sizes)
    if first.op in SIZES_FREE and first.input_sizes and first.output_sizes:
        sizes = f"{sizes} -> {tell_sizes(first.output_sizes)}"
    dtypes = dict.fromkeys(first.input_dtypes or first.output_dtypes)
    return " ".join(filter(None, [first.op, sizes, *dtypes])) + more


def tell_sizes(sizes: tuple[tuple[int, ...], ...]) -> str:
    more = f" and {len(sizes) - _MAX_SIZES} more" if len(sizes) > _MAX_SIZES else ""
    return " ".join(str(list(size)) for size in sizes[:_MAX_SIZES]) + more


def tell_slot(track: Track, seq: int, tables: Tables, volumes: Volumes | None = None) -> str | None:
    """What a track holds at `seq`, and how far it came. None: it holds nothing there.

    Only calls at the frontier are kept whole. Of others a rank's sizes are known where members must agree on them, and
    both ends of a message look like one of them.
    """
    op = frontier_op(track, seq)
    if op is not None:
        return tell_op(op)
    signature, _ = issued(track, seq, tables)
    if signature is None:
        return None
    done = track.last_done is not None and seq <= track.last_done.seq
    if signature.peers is not None:
        signature = replace(signature, op=track.last.signatures[0].op)
    call = _tell_volume(signature, seq, volumes) if signature.op in SIZES_FREE else tell_call((signature,))
    return f"{call}, {'completed' if done else 'issued'}"


def _tell_volume(signature: Signature, seq: int, volumes: Volumes | None) -> str:
    at = volumes.seqs.tolist().index(seq) if volumes is not None and seq in volumes.seqs else None
    if volumes is None or at is None:
        return signature.op
    return f"{signature.op} that sends {volumes.sent[at]} and receives {volumes.received[at]} elements"
