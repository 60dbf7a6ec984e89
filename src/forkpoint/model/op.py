"""One communication call as one rank recorded it."""

from dataclasses import dataclass
from enum import StrEnum


class OpState(StrEnum):
    """How far an op came: upstream's three words, and what we infer from them."""

    SCHEDULED = "scheduled"
    """Issued. Without start events (the default) a kernel that runs right now reads so too."""
    STARTED = "started"
    COMPLETED = "completed"
    ENTERING = "entering"
    """Recorded, but its rank is still inside the enqueue: it has not started, whatever the dump says."""
    ABORTED = "aborted"
    """Reads `completed`, but only because its communicator was torn down."""


@dataclass(frozen=True, slots=True)
class Frame:
    name: str
    filename: str
    line: int


Stack = tuple[Frame, ...]
"""Innermost frame first. Empty when the caller was C++ (DDP's reducer)."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What was called, as recorded: equal calls have equal signatures."""

    lib: str
    """`nccl`, `gloo`, ..."""
    op: str
    """Upstream's name without library and peers: `all_reduce`, `send`, `coalesced`."""
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


@dataclass(frozen=True, slots=True)
class Op:
    """One recorded call, with all that its rank still knows of it."""

    rank: int
    record_id: int
    """Order within this rank over all groups. Means nothing on another rank."""
    seq: int
    """Position in the group's collectives, or the message's number on its channel."""
    batch: int
    """Messages issued together share it: they finish together or not at all. 0 for collectives."""
    signatures: tuple[Signature, ...]
    """One; several where calls were coalesced into one."""
    state: OpState
    retired: bool
    created_ns: int
    since_previous_ns: int | None
    """Time since this rank issued the op before it in the same order, on its own clock. None: that one is not held."""
    completed_ns: int
    """When a CPU thread noticed; 0 = never."""
    timeout_ms: int
    stack: Stack | None
    """None: the dump was made without stacks."""
    thread: str
