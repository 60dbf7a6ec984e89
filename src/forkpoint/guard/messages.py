"""The messages between guards, and how they go through the store: msgpack in, the expected type out, or nothing.

Anyone who reaches the store can write there, so whatever is not exactly the expected type is dropped.
"""

import os
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from forkpoint.live.processes import read_host_id, read_state
from forkpoint.model.world import ProcessGroup

# ---------------------------------------------------------------------------------------------------------------------
# Encoding.

T = TypeVar("T")

_MAX_BYTES: Final = 64 << 20


def encode(message: object) -> bytes:
    return msgspec.msgpack.encode(message)


def decode(data: bytes | None, kind: type[T]) -> T | None:
    """None: no message, or not of this type."""
    if data is None or len(data) > _MAX_BYTES:
        return None
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MemoryError):
        return None


def require(holds: bool, what: str) -> None:
    """For `__post_init__`: a message that violates it is dropped when it is decoded."""
    if not holds:
        raise ValueError(what)


def is_duration(seconds: float) -> bool:
    """Not infinite, and not NaN, for which every comparison with a threshold is false."""
    return 0.0 <= seconds <= _LONGEST_S


_LONGEST_S: Final = 1e9


def printable(text: str) -> str:
    r"""Lone surrogates, as in file names that are not UTF-8, cannot be encoded: they become `\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode()


# ---------------------------------------------------------------------------------------------------------------------
# What one rank sends to the others at every look.


class RankHealth(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    """Its program ended, or destroyed its process groups."""
    RAISED = "raised"
    """Its program ends with an exception."""
    STOPPED = "stopped"
    """Its process exists but does not run (SIGSTOP). Reported by a rank on the same host."""
    GONE = "gone"
    """Its process has ended. Reported by a rank on the same host."""


@dataclass(frozen=True, slots=True)
class GroupBeat:
    """One group's counters. Its key is name and members, since the same name may mean other members on other ranks."""

    size: int
    completed: int
    last_seq: int
    """The newest call, recorded or counted: a call is recorded before it is counted as enqueued."""
    timeout_s: float

    def __post_init__(self) -> None:
        require(is_duration(self.timeout_s), "not a duration")

    @property
    def waits_at(self) -> int | None:
        """The call that is not done; None without one."""
        return self.completed + 1 if self.last_seq > max(self.completed, 0) else None


@dataclass(frozen=True, slots=True)
class Calls:
    """What a rank called lately. The largest message, so it is sent only after the calls were read again."""

    rank: int
    reads: int
    """One higher each time."""
    tails: dict[str, dict[int, int]]
    """By group: token by seq."""
    blocks: dict[str, dict[int, int]]
    """By group: signature by number of the block."""
    steps: dict[int, dict[str, int]]
    """How many calls each group had at the end of a step, for steps marked with `guard.step`."""


@dataclass(frozen=True, slots=True)
class Beat:
    rank: int
    number: int
    """One higher each time: a rank whose number does not change is silent."""
    state: RankHealth
    says: str
    """The exception it ends with."""
    still_s: float
    """How long nothing has moved here, by this rank's own clock."""
    calling: str
    """The torch.distributed call its main thread is in."""
    groups: dict[str, GroupBeat]
    reads: int
    """The `reads` of the calls that belong to it."""
    neighbour: int | None = None
    """The next rank on the same host, whose process this one checks."""
    neighbour_state: RankHealth = RankHealth.RUNNING

    def __post_init__(self) -> None:
        require(is_duration(self.still_s), "not a duration")

    @property
    def is_waiting(self) -> bool:
        return self.state is RankHealth.RUNNING and (
            bool(self.calling) or any(g.waits_at is not None for g in self.groups.values())
        )


# ---------------------------------------------------------------------------------------------------------------------
# What a rank sends when it is asked: its dump, its stacks, its groups.

_NAME: Final = re.compile(r"[0-9]{8}-[0-9]{6}")


@dataclass(frozen=True, slots=True)
class Ask:
    number: int = 0
    """One higher for each; 0 = nothing was asked yet."""
    ranks: tuple[int, ...] = ()
    """Who is asked; empty: everybody."""
    keep: str = ""
    """Write the files to a folder of this name (a time) below the rank's own output folder; "" = send them through the
    store. Only a name: whoever reaches the store must not choose where a rank writes."""


@dataclass(frozen=True, slots=True)
class RankAnswer:
    rank: int
    world_size: int
    groups: tuple[ProcessGroup, ...]
    stacks: str
    steps: dict[int, dict[str, int]]
    """Step -> group name -> number of calls at its end."""
    dump: bytes = field(repr=False)


def decode_ask(data: bytes | None) -> Ask:
    ask = decode(data, Ask) or Ask()
    return ask if _NAME.fullmatch(ask.keep) else replace(ask, keep="")


# ---------------------------------------------------------------------------------------------------------------------
# Is the next rank's process on this host still running? That is all a guard can know about a silent rank.


@dataclass(frozen=True, slots=True)
class Identity:
    """A process, published once by its rank."""

    host: str
    """Identifies its host and pid namespace."""
    pid: int
    started: int

    def look_at(self) -> RankHealth:
        """Only where `host` is this process's own."""
        state = read_state(self.pid)
        if state is None or state.is_dead or state.started != self.started:
            return RankHealth.GONE
        return RankHealth.STOPPED if state.is_stopped else RankHealth.RUNNING


def own_identity() -> Identity:
    state = read_state(os.getpid())
    return Identity(read_host_id() if state else "", os.getpid(), state.started if state else 0)
