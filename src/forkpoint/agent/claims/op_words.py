"""Operations as people, programs and logs write them, against what recorders write."""

import re
from typing import Final

from forkpoint.model.op_names import split_name

_LONGEST: Final = 60
_SAME: Final = {
    "allgatherintotensor": "allgatherbase",
    "allgathersingle": "allgatherbase",
    "reducescattertensor": "reducescatterbase",
    "reducescattersingle": "reducescatterbase",
    "alltoallsingle": "alltoall",
    "alltoallbase": "alltoall",
    "alltoallv": "alltoall",
    "allreducebarrier": "barrier",
    "isend": "send",
    "irecv": "recv",
    "broadcastoop": "broadcast",
    "gathersingle": "gather",
}
"""What a program calls, and how a recorder names that call."""


def same_op(one: str, two: str) -> bool:
    """`all_reduce`, `allreduce`, `ALLREDUCE` and `nccl:all_reduce` are one operation."""
    return plain_op(one) != "" and plain_op(one) == plain_op(two)


def plain_op(name: str) -> str:
    """One spelling for all; empty for what names no operation."""
    if len(name) > _LONGEST:
        return ""
    _, op, _ = split_name(name.strip())
    plain = op.rpartition(".")[2].lower()
    if not re.fullmatch(r"[a-z0-9_]+", plain):
        return ""
    plain = plain.replace("_", "")
    return _SAME.get(plain, plain)
