"""Names of ops as recorders write them: library, operation and peers in one text."""

import re

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
"""When one of these is done on one member, every member has issued it. A root may finish the others alone."""

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
