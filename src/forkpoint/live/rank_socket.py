"""The socket on which the guard of one rank answers questions from the same machine (`forkpoint attach`).

Its name is in Linux's abstract namespace: no file stays behind, and only processes in the same network namespace can
reach it. Containers may share that namespace and still have their own pids, so the name contains the pid namespace. The
kernel identifies the client; only the rank's own user and root are answered. Each connection gets one answer: everything the
guard would hand to the other ranks.
"""

import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from forkpoint.live.processes import PROC
from forkpoint.model.world import ProcessGroup

_CREDENTIALS: Final = struct.Struct("3i")
_ANSWERS_S: Final = 5.0
"""For the client to read the answer."""


def socket_name(process: str, own_pid: int) -> str:
    """`process`: its folder below /proc; `own_pid`: its pid in its own pid namespace. Raises OSError if the process is gone
    or belongs to another user.
    """
    numbers = Path(process, "ns", "pid").readlink()
    return f"\0forkpoint-guard-{numbers}-{own_pid}"


def may_ask(connection: socket.socket) -> bool:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return uid in (os.geteuid(), 0)


class AnswerThread:
    """Blocks in `accept`, so it costs nothing until somebody asks."""

    def __init__(self, answer: Callable[[], bytes]) -> None:
        """Raises OSError if the socket cannot be opened."""
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(socket_name(f"{PROC}/self", os.getpid()))
            self._socket.listen()
        except OSError:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._serve, daemon=True, name="forkpoint-answers")
        self._thread.start()

    def close(self) -> None:
        """`shutdown` wakes the thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            with connection, suppress(OSError):
                connection.settimeout(_ANSWERS_S)
                if may_ask(connection):
                    connection.sendall(self._answer())


# ---------------------------------------------------------------------------------------------------------------------
# The client side. It does not import the guard, which imports torch.


@dataclass(frozen=True, slots=True)
class GuardAnswer:
    """The part of the guard's answer that becomes evidence."""

    rank: int
    groups: tuple[ProcessGroup, ...]
    stacks: str
    dump: bytes = field(repr=False)


def read_answer(data: bytes) -> GuardAnswer | None:
    """None: not a guard's answer."""
    try:
        return msgspec.msgpack.decode(data, type=GuardAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MemoryError):
        return None
