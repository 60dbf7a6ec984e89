"""The collectives that are tried, and how nccl-tests turn their time into a bus bandwidth (its PERFORMANCE.md)."""

from dataclasses import dataclass
from enum import StrEnum

from forkpoint.lab.collectives.arguments import DTYPES

NUMBERS = DTYPES[:-1]
"""What is moved and not reduced may be of any type. What the sum of booleans is, backends do not agree on."""
ITEM_SIZE = {"float32": 4, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8, "uint8": 1, "bool": 1}
TIMED = "float32"
"""Time is a matter of bytes: it is taken with one type, and the others are only checked."""


class Bus(StrEnum):
    """How many times the busiest link carries the buffer, so that numbers of unlike collectives compare."""

    ONCE = "once"
    SHARED = "shared"
    """All but a rank's own part: (n-1)/n."""
    TWICE = "twice"
    """There and back: 2(n-1)/n."""


@dataclass(frozen=True, slots=True)
class CollectiveKind:
    name: str
    bus: Bus | None
    """None: it moves nothing."""
    dtypes: tuple[str, ...] = DTYPES
    chunked: bool = False
    """The size is that of one part per member together, as nccl-tests count it."""

    def bus_factor(self, members: int) -> float:
        if self.bus is Bus.ONCE:
            return 1.0
        return (2.0 if self.bus is Bus.TWICE else 1.0) * (members - 1) / members


KINDS = (
    CollectiveKind("all_reduce_sum", Bus.TWICE, NUMBERS),
    CollectiveKind("all_reduce_max", Bus.TWICE, NUMBERS),
    CollectiveKind("all_reduce_min", Bus.TWICE, NUMBERS),
    CollectiveKind("all_reduce_product", Bus.TWICE, NUMBERS),
    CollectiveKind("broadcast", Bus.ONCE),
    CollectiveKind("reduce_sum", Bus.ONCE, NUMBERS),
    CollectiveKind("all_gather", Bus.SHARED, chunked=True),
    CollectiveKind("all_gather_into_tensor", Bus.SHARED, chunked=True),
    CollectiveKind("reduce_scatter", Bus.SHARED, NUMBERS, chunked=True),
    CollectiveKind("reduce_scatter_tensor", Bus.SHARED, NUMBERS, chunked=True),
    CollectiveKind("all_to_all", Bus.SHARED, chunked=True),
    CollectiveKind("all_to_all_single", Bus.SHARED, chunked=True),
    CollectiveKind("all_to_all_single_uneven", Bus.SHARED, chunked=True),
    CollectiveKind("gather", Bus.SHARED, chunked=True),
    CollectiveKind("scatter", Bus.SHARED, chunked=True),
    CollectiveKind("send_recv", Bus.ONCE),
    CollectiveKind("batch_isend_irecv", Bus.ONCE),
    CollectiveKind("barrier", None, ("uint8",)),
)
KIND_BY_NAME = {kind.name: kind for kind in KINDS}
