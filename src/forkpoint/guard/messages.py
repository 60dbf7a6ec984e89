"""The messages between guards, and how they go through the store: msgpack in, the expected type out, or nothing.

Anyone who reaches the store can write there, so whatever is not exactly the expected type is dropped.
"""

import os
import re
import socket
import struct
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar, cast

import msgspec
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed import DistError, distributed_c10d

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


# ---------------------------------------------------------------------------------------------------------------------
# How guards reach each other: a separate store connection, never the job's communicators or the job's own client.
#
# Under torchrun that is the agent's store, which outlives every rank. Otherwise rank 0's guard serves one, and publishes its
# address once in the job's store. Every call has a time limit; if the store does not answer, the guard is blind, no more.


_ANSWERS_S: Final = 3.0
"""A store in the same data centre answers in a millisecond; after this long without an answer it counts as gone."""
_ADDRESS: Final = "forkpoint/guard/address"


class Blind(Exception):
    """The other guards cannot be reached; the text says why."""


class GuardStore:
    """The guards' keys in a store. All methods raise Blind if the store does not answer."""

    def __init__(self, store: TCPStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._known: set[str] = set()
        """Keys that exist: `get` of a missing key would block."""

    def publish(self, key: str, value: bytes) -> None:
        with _or_blind():
            self._store.set(self._prefix + key, cast("str", value))  # bytes are accepted, whatever the stub says

    def read(self, keys: Sequence[str]) -> list[bytes | None]:
        """The value of each key; None if it is missing."""
        with _or_blind():
            for key in keys:
                if key not in self._known and self._store.check([self._prefix + key]):
                    self._known.add(key)
            known = [key for key in keys if key in self._known]
            values = self._store.multi_get([self._prefix + key for key in known]) if known else []
        told = dict(zip(known, values, strict=True))
        return [told.get(key) for key in keys]

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes what is no longer needed: a dump of every rank is large."""
        with _or_blind():
            for key in keys:
                self._store.delete_key(self._prefix + key)
                self._known.discard(key)


def connect_guards(
    rank: int, session: int, give_up: float, environ: Mapping[str, str] = os.environ, *, again: bool = False
) -> GuardStore:
    """`session` counts the process groups of this process. `again`: an earlier connection was lost. Raises Blind if no store
    is found before `give_up` (time.monotonic).
    """
    # After a restart, of the job or of its process group, messages from before must not be read.
    run, restart = environ.get("TORCHELASTIC_RUN_ID", ""), environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefix = f"forkpoint/guard/{run}/{restart}/{session}/"
    with _or_blind():
        if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            return GuardStore(_connect(environ["MASTER_ADDR"], int(environ["MASTER_PORT"])), prefix)
        if again and _known_address:
            # Not through the job's own client: a training thread that waits in it blocks all other users.
            return GuardStore(_connect(*_known_address[0]), prefix)
        job = distributed_c10d._get_default_store()  # noqa: SLF001 the only way to the job's store
        if rank == 0:
            served = _serve(job, environ)
            _known_address[:] = [("127.0.0.1", served.port)]
            return GuardStore(served, prefix)
        host, _, port = _address(job, give_up).rpartition(":")
        _known_address[:] = [(host, int(port))]
        return GuardStore(_connect(host, int(port)), prefix)


_known_address: list[tuple[str, int]] = []
"""Address of the guards' store once it is known: it lives as long as rank 0's process."""
_served: list[TCPStore] = []
"""One for all sessions of a process: its address must not change while others may still use the old one."""


def _serve(job: Store, environ: Mapping[str, str]) -> TCPStore:
    if not _served:
        _served.append(
            TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=_ANSWERS_S))  # noqa: S104 ranks of other hosts connect, as to torch's own
        )
    store = _served[0]
    job.set(_ADDRESS, f"{environ.get('MASTER_ADDR') or socket.gethostname()}:{store.port}")
    return store


def _address(job: Store, give_up: float) -> str:
    # `get` would block the job's own client until rank 0 has published it.
    while not job.check([_ADDRESS]):
        if time.monotonic() > give_up:
            raise Blind("rank 0's guard has not published its address; is FORKPOINT set on every rank?")
        time.sleep(0.2)
    return job.get(_ADDRESS).decode()


def _connect(host: str, port: int) -> TCPStore:
    before = _connections()
    store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=_ANSWERS_S))
    for name, number in _connections().items():
        if name not in before:
            _bound(number, port)
    return store


def _connections() -> dict[str, int]:
    """File descriptors of this process by inode name: the job's own client may be connected to the same store."""
    found: dict[str, int] = {}
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found[str(entry.readlink())] = int(entry.name)
    return found


def _bound(number: int, port: int) -> None:
    """Sets a time limit on the store's connection. Without it a frozen host would block its clients forever: the store's own
    timeout is only for keys that do not exist yet.
    """
    try:
        with socket.socket(fileno=os.dup(number)) as connection:  # a second descriptor of the same connection
            if connection.getpeername()[1] == port:
                limit = struct.pack("ll", int(_ANSWERS_S), 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    except OSError:
        return  # not a socket: a file that another thread opened meanwhile


@contextmanager
def _or_blind() -> Generator[None]:
    """What torch's store raises, and what a wrong address or variable leads to."""
    try:
        yield
    except (DistError, RuntimeError, OSError, KeyError, ValueError) as error:
        first = str(error).strip().partition("\n")[0][:160]
        raise Blind(f"the guards' store does not answer ({first or type(error).__name__})") from error
