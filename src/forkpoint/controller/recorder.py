"""Inside a rank: its groups, their counters, and what its flight recorder holds. Imports torch."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import numpy as np
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from forkpoint.controller.answers import GroupCount, IssuedOps, RecorderLook
from forkpoint.guard.recorder import find_groups, without_inductor
from forkpoint.model.op import Ints, match_token
from forkpoint.model.world import ProcessGroup
from forkpoint.traces.columns import DumpColumns
from forkpoint.traces.dump import decode
from forkpoint.traces.states import message_rows

_SEQUENCE_NUMBER = "_get_sequence_number_for_group"
DUMPS = ("_dump_nccl_trace", "_dump_fr_trace")
"""NCCL's recorder, which only CUDA builds have, and that of gloo and the others."""


def count_issued() -> tuple[GroupCount, ...]:
    # A private method of torch; there is no public one.
    return tuple(GroupCount(group, getattr(at, _SEQUENCE_NUMBER)()) for group, at in find_groups().items())


def look(rank: int) -> RecorderLook:
    groups = find_groups()
    held = [decode(dump(recorder, stacks=False), recorder) for recorder in _recorders()]
    recorded = {count.group: count for columns in held for count in _recorded(columns, groups)}
    # NCCL counts only collectives, recorded or not; the counter of other backends includes messages, so only 0 is sure.
    counted = {c.group: c for c in count_issued() if not c.seq or dist.get_backend(groups[c.group]) == "nccl"}
    issued = tuple(i for columns in held for i in _issued(columns, groups))
    return RecorderLook(rank, tuple((recorded | counted).values()), issued)


def fullest_dump() -> bytes:
    """With stacks. One dump per rank: if both recorders were used, NCCL's, as in a dump on timeout."""
    held = [dump(recorder, stacks=True) for recorder in _recorders()]
    return next((data for data in held if decode(data, "").record_id.size), held[-1])


def dump(recorder: str, *, stacks: bool) -> bytes:
    with without_inductor():
        return getattr(c10d, recorder)(includeCollectives=True, includeStackTraces=stacks, onlyActive=False)


def _recorders() -> list[str]:
    return [name for name in DUMPS if hasattr(c10d, name)]


def _recorded(columns: DumpColumns, groups: Iterable[ProcessGroup]) -> Iterator[GroupCount]:
    """The recorder numbers collectives and messages separately."""
    from_start = _from_start(columns)
    for group, rows in _rows_by_group(columns, groups):
        if rows.size:
            yield GroupCount(group, int(columns.collective_seq[rows[-1]]))
        elif from_start:
            yield GroupCount(group, 0)


def _issued(columns: DumpColumns, groups: Iterable[ProcessGroup]) -> Iterator[IssuedOps]:
    tokens = np.array([match_token(s) for s in columns.signatures], dtype=np.uint64)
    for group, rows in _rows_by_group(columns, groups):
        if rows.size:
            held = tokens[columns.signature[rows]]
            lengths = [1 << n for n in range(int(held.size).bit_length())]
            digests = tuple(_digest(held[-length:].tobytes()) for length in (*lengths, held.size))
            yield IssuedOps(group, int(held.size), _from_start(columns), digests)


def _rows_by_group(columns: DumpColumns, groups: Iterable[ProcessGroup]) -> Iterator[tuple[ProcessGroup, Ints]]:
    """Without messages: ranks may send different numbers of them."""
    collective = ~message_rows(columns).of_p2p
    names = [name for name, _ in columns.groups]
    for group in groups:
        of_group = np.isin(columns.group, [n for n, name in enumerate(names) if name == group.name])
        yield group, np.flatnonzero(collective & of_group)


def _from_start(columns: DumpColumns) -> bool:
    return bool(columns.record_id.size) and int(columns.record_id[0]) == 0


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
