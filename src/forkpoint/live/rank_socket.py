"""How somebody on the same machine asks the guard of one rank: a socket that is named after the process.

The name is in Linux's abstract namespace: no file stays behind, and only processes of the same network namespace reach
it. Containers may share that and still number their processes by themselves, so the name says which numbers are meant. The kernel says who asks; only the rank's own user and root are answered. One connection is one answer: all that the
rank holds, as its guard would hand it to the others.
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
"""For whoever asks to take the answer."""


def socket_name(process: str, own_pid: int) -> str:
    """`process`: its folder below /proc; `own_pid`: as the process itself knows it. Raises OSError where it is gone or somebody
    else's.
    """
    numbers = Path(process, "ns", "pid").readlink()
    return f"\0forkpoint-guard-{numbers}-{own_pid}"


def may_ask(connection: socket.socket) -> bool:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return uid in (os.geteuid(), 0)


class AnswerThread:
    """Waits for questions, and costs nothing until one comes."""

    def __init__(self, answer: Callable[[], bytes]) -> None:
        """Raises OSError where no socket can be had."""
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
# The other side: whoever asks. It does not know the guard, which imports torch.


@dataclass(frozen=True, slots=True)
class GuardAnswer:
    """Of what the guard sends, all that evidence is made of."""

    rank: int
    groups: tuple[ProcessGroup, ...]
    stacks: str
    dump: bytes = field(repr=False)


def read_answer(data: bytes) -> GuardAnswer | None:
    """None: not an answer of a guard."""
    try:
        return msgspec.msgpack.decode(data, type=GuardAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MemoryError):
        return None
