"""One question over a socket, one answer: bounded in time and size, from a side that is not trusted. And NCCL's RAS, which is asked so:
one question to any process of the job, one report on all communicators. Evidence, never a verdict.
"""

import http.client
import io
import socket
import time
from dataclasses import dataclass

from forkpoint.errors import UsageError
from forkpoint.evidence.machine.ras import looks_like_ras
from forkpoint.live.watch.sources import Gathered, Spool

LIMIT_S = 5.0
"""A rank's server answers in 0.2 s even while Python is stuck; a loaded node gets 25 times that."""
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class SourceAddress:
    host: str
    """A path, for a socket in the file system; a name after a zero byte, for one of Linux's abstract namespace."""
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host

    @property
    def is_path(self) -> bool:
        return self.host.startswith(("/", "\0"))


@dataclass(frozen=True, slots=True)
class NoAnswer:
    why: str


def parse_address(text: str) -> SourceAddress:
    """`host:port`, `[::1]:port`, or the path of a socket. Raises UsageError."""
    if text.startswith("/"):
        return SourceAddress(text, 0)
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{text}: must be HOST:PORT, or the path of a socket")
    return SourceAddress(host.removeprefix("[").removesuffix("]"), int(port))


def ask(address: SourceAddress, question: bytes, max_bytes: int, limit_s: float = LIMIT_S) -> bytes | NoAnswer:
    """Everything that comes back until the other side closes."""
    deadline = time.monotonic() + limit_s
    try:
        with _connect(address, limit_s) as connection:
            if question:  # a server that answers at once may have closed already
                connection.sendall(question)
            return _read_all(connection, deadline, max_bytes)
    except TimeoutError:
        return NoAnswer(f"no complete answer within {limit_s:g} s")
    except OSError as error:
        return NoAnswer(f"cannot be reached ({error.strerror or error})")


def ask_http(address: SourceAddress, method: str, path: str, max_bytes: int) -> bytes | NoAnswer:
    """The body of an answer that says OK. Redirects are not followed: they could lead anywhere."""
    # HTTP/1.0: the answer comes in one piece, and its end is the end of the connection.
    question = f"{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n"
    answer = ask(address, question.encode("ascii", "replace"), max_bytes)
    if isinstance(answer, NoAnswer):
        return answer
    try:
        response = http.client.HTTPResponse(_Received(answer))  # pyrefly: ignore[bad-argument-type] - only makefile is used
        response.begin()
        body = response.read()
    except (http.client.HTTPException, ValueError):
        return NoAnswer("its answer is not HTTP, or is truncated")
    return body if response.status == http.HTTPStatus.OK else NoAnswer(f"it answers with status {response.status}")


class _Received:
    """Makes bytes look like a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _connect(address: SourceAddress, limit_s: float) -> socket.socket:
    if not address.is_path:
        return socket.create_connection((address.host, address.port), timeout=limit_s)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(limit_s)
    try:
        connection.connect(address.host)
    except OSError:
        connection.close()
        raise
    return connection


def _read_all(connection: socket.socket, deadline: float, max_bytes: int) -> bytes | NoAnswer:
    pieces: list[bytes] = []
    size = 0
    while (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)  # per piece, so an answer that trickles in does not stretch the limit
        piece = connection.recv(_PIECE)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
        if size > max_bytes:
            return NoAnswer(f"its answer is longer than {max_bytes >> 10} kB")
    raise TimeoutError


# ---------------------------------------------------------------------------------------------------------------------
# NCCL's RAS: one question to any process of the job, one report on all communicators. Evidence, never a verdict.

_QUESTION = b"verbose status\n"
_MAX_BYTES = 16 << 20
"""The same limit as for one text file."""
_LIMIT_S = 15.0
"""RAS itself waits 5 s for processes that do not answer, and asks again."""


class Ras:
    name = "ras"

    def __init__(self, address: SourceAddress) -> None:
        self._address = address

    def gather(self, spool: Spool, *, stacks: bool) -> Gathered:
        """Only when nothing moves: counts of a running job differ from one moment to the next and say nothing."""
        if not stacks:
            return Gathered()
        answer = ask(self._address, _QUESTION, _MAX_BYTES, _LIMIT_S)
        if isinstance(answer, bytes) and looks_like_ras(answer.decode("utf-8", "replace")):
            return Gathered(stacks=(spool.put("ras.txt", answer),))
        why = answer.why if isinstance(answer, NoAnswer) else "its answer is not a RAS report"
        return Gathered(notes=(f"{self._address}: {why}",))
