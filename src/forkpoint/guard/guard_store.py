"""How guards reach each other: a separate store connection, never the job's communicators or the job's own client.

Under torchrun that is the agent's store, which outlives every rank. Otherwise rank 0's guard serves one, and publishes its
address once in the job's store. Every call has a time limit; if the store does not answer, the guard is blind, no more.
"""

import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final, cast

from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed import DistError, distributed_c10d

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
        try:
            self._store.set(self._prefix + key, cast("str", value))  # bytes are accepted, whatever the stub says
        except (DistError, RuntimeError) as error:
            raise Blind(_why(error)) from error

    def read(self, keys: Sequence[str]) -> list[bytes | None]:
        """The value of each key; None if it is missing."""
        try:
            for key in keys:
                if key not in self._known and self._store.check([self._prefix + key]):
                    self._known.add(key)
            known = [key for key in keys if key in self._known]
            values = self._store.multi_get([self._prefix + key for key in known]) if known else []
        except (DistError, RuntimeError) as error:
            raise Blind(_why(error)) from error
        told = dict(zip(known, values, strict=True))
        return [told.get(key) for key in keys]

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes what is no longer needed: a dump of every rank is large."""
        try:
            for key in keys:
                self._store.delete_key(self._prefix + key)
                self._known.discard(key)
        except (DistError, RuntimeError) as error:
            raise Blind(_why(error)) from error


def connect_guards(
    rank: int, session: int, give_up: float, environ: Mapping[str, str] = os.environ, *, again: bool = False
) -> GuardStore:
    """`session` counts the process groups of this process. `again`: an earlier connection was lost. Raises Blind if no store
    is found before `give_up` (time.monotonic).
    """
    # After a restart, of the job or of its process group, messages from before must not be read.
    run, restart = environ.get("TORCHELASTIC_RUN_ID", ""), environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefix = f"forkpoint/guard/{run}/{restart}/{session}/"
    try:
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
    except (DistError, RuntimeError, OSError, KeyError, ValueError) as error:
        raise Blind(_why(error)) from error


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


def _why(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0][:160]
    return f"the guards' store does not answer ({first or type(error).__name__})"
