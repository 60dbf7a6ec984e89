"""What the processes of a job tell their controller."""

from dataclasses import dataclass
from typing import Any

from forkpoint.model.world import ProcessGroup


@dataclass(frozen=True, slots=True)
class Hello:
    """The first word of a rank's process."""

    rank: int
    pid: int
    parent: int
    address: tuple[str, int] | None
    """Of the store through which ranks find each other; only its host has one."""


@dataclass(frozen=True, slots=True)
class GroupCount:
    """How many operations a rank has issued in a group."""

    group: ProcessGroup
    seq: int


@dataclass(frozen=True, slots=True)
class Returned:
    rank: int
    call: int
    value: Any
    counts: tuple[GroupCount, ...]
    """As the groups count, which is quick to ask. gloo counts messages too: there ranks may differ, and rightly."""


@dataclass(frozen=True, slots=True)
class Raised:
    rank: int
    call: int
    error: str
    """What Python prints last, on one line, shortened."""
    traceback: str


@dataclass(frozen=True, slots=True)
class IssuedOps:
    """The collectives that a rank's recorder still holds of a group."""

    group: ProcessGroup
    count: int
    from_start: bool
    """These are all that it ever issued: none has left the ring buffer."""
    digests: tuple[str, ...]
    """Of the last one, two, four, ... and of all of them. Two are equal where operations, sizes that must fit, and dtypes
    are, in their order."""


@dataclass(frozen=True, slots=True)
class RecorderLook:
    """What a rank's recorder shows between two calls."""

    rank: int
    counts: tuple[GroupCount, ...]
    """Of collectives alone. A group is left out where that is not known."""
    issued: tuple[IssuedOps, ...]


@dataclass(frozen=True, slots=True)
class Testimony:
    """What a rank's process shows while the call is stuck, or after it failed."""

    rank: int
    dump: bytes
    """Of its flight recorder; empty where that is off."""
    stacks: str
    """Empty where no call runs."""
    groups: tuple[ProcessGroup, ...]


@dataclass(frozen=True, slots=True)
class Death:
    """A process that ended by itself."""

    rank: int
    how: str
    """`exited with code 7`, in Monarch's words; empty while they are not known."""
    moment: int
    """Deaths that were seen at once have the same: which of them came first is not known."""
