"""A recorded call in words, groups of members whose records say the same, and a divergence in words."""

from msgspec.structs import replace

from forkpoint.diverge.cohorts import frontier_op, issued
from forkpoint.model.entries import Tables
from forkpoint.model.incident import Divergence
from forkpoint.model.incident import fact as once
from forkpoint.model.op import SIZES_FREE, Op, Signature
from forkpoint.model.timeline import GroupTimeline, Timeline
from forkpoint.model.trace import Track, Volumes
from forkpoint.model.world import name_ranks

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
    return " ".join(word for word in (first.op, sizes, *dtypes) if word) + more


def tell_sizes(sizes: tuple[tuple[int, ...], ...]) -> str:
    more = f" and {len(sizes) - _MAX_SIZES} more" if len(sizes) > _MAX_SIZES else ""
    return " ".join(str(list(size)) for size in sizes[:_MAX_SIZES]) + more


def tell_slot(track: Track, seq: int, tables: Tables, volumes: Volumes | None = None) -> str | None:
    """The call at `seq` and its state. None if nothing is recorded there.

    Only calls at the frontier are kept in full. For others, sizes are known only if all members must agree on them, and both ends
    of a message look the same.
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


@once
def _how_held(timeline: Timeline) -> dict[int, tuple[bool, bool]]:
    """Rank -> (its dump omits finished calls, its dump begins with the rank's first call)."""
    return {rank: (trace.is_partial, trace.from_start) for rank, trace in timeline.traces.items()}


def members_alike(group: GroupTimeline, timeline: Timeline) -> list[list[int]]:
    """Groups members that get the same text: same kind of track, and the same parts of it recorded."""
    kinds = {rank: kind for rank, kind, _ in group.traces.completed()}
    held = _how_held(timeline)
    together: dict[object, list[int]] = {}
    for rank in group.group.ranks:
        key: object = None
        if rank in group.traces:
            key = (kinds.get(rank, -1), group.blind_after.get(rank), *held[rank])
        together.setdefault(key, []).append(rank)
    return list(together.values())


def tell_divergence(divergence: Divergence) -> str:
    parts = [f"ranks diverge in {divergence.how}"]
    if divergence.first_visible_seq not in {None, divergence.seq}:
        parts.append(f"recorded calls differ first at seq {divergence.first_visible_seq}")
    if divergence.hang_seq is not None:
        parts.append(f"ranks wait in seq {divergence.hang_seq}")
    if divergence.odd:
        parts.append(f"different from the rest: {name_ranks(divergence.odd)}")
    if divergence.shift is not None:
        shift = divergence.shift
        way = f"skipped {shift.by}" if shift.by > 0 else f"issued {-shift.by} more"
        parts.append(f"{name_ranks(shift.ranks) if shift.ranks else 'one side'} {way} since seq {shift.since}")
    if divergence.cycle:
        parts.append(f"ranks {', '.join(map(str, divergence.cycle[:16]))} wait for each other in a ring")
    if divergence.unknown:
        parts.append(f"what {name_ranks(divergence.unknown)} did here is unknown")
    return "; ".join(parts)
