"""The server, from bind to shutdown."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from operator import attrgetter
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Literal, cast

import uvicorn
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from forkpoint.errors import UsageError
from forkpoint.live.serve.pages import HISTORY, TokenGate, make_app
from forkpoint.live.serve.watch import Diagnoser, FolderWatch

if TYPE_CHECKING:
    from forkpoint.history.store import Store

_LOOPBACK = "127.0.0.1"
_NOWHERE = ""
"""Instead of a folder: only a store is shown."""
_MAX_CONNECTIONS = 200
_SHUTDOWN_S = 2
"""For answers that are being sent when the server stops."""
_JOIN_S = 10.0
"""For those, and for workers that are being ended."""


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A listening socket; nothing is answered yet."""

    socket: socket.socket
    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://{_LOOPBACK}:{self.port}/?token={self.token}"


def bind(port: int, option: str = "--port", free: str = "leave it out to use a free one") -> BoundSocket:
    """0: any free port. Raises UsageError when the port is taken, which names the option and how to get a free one."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_LOOPBACK, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise UsageError(f"{option} {port}: {error.strerror}; {free}") from error
    return BoundSocket(listening, listening.getsockname()[1], secrets.token_urlsafe(32))


def run(
    bound: BoundSocket,
    root: str | None,
    source: Sequence[str] = (),
    *,
    embed_source: bool = False,
    store: "Store | None" = None,
) -> None:
    """Runs until Ctrl-C, then raises KeyboardInterrupt after the shutdown. Without a `root` only the store is shown."""
    watch = FolderWatch(str(Path(root).resolve()) if root else _NOWHERE, Diagnoser(source, embed_source))
    asyncio.run(_serve(bound, watch, history=_history(watch, store) if store else ()))


def _history(watch: FolderWatch, store: "Store") -> list[Route]:
    from forkpoint.live.serve.history import history_routes  # noqa: PLC0415 - SQLAlchemy is a separate extra

    return history_routes(store, lambda: watch.closed, HISTORY if watch.root else "/")


@contextlib.contextmanager
def serving(bound: BoundSocket, root: str, source: Sequence[str] = ()) -> Generator[None]:
    """Serves from its own thread until the block ends."""
    watch = FolderWatch(str(Path(root).resolve()), Diagnoser(source))
    begun: Future[_Server] = Future()
    thread = Thread(target=lambda: asyncio.run(_serve(bound, watch, begun.set_result)), daemon=True)
    thread.start()
    server = begun.result()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(_JOIN_S)


_IDLE_SHARE = 4
"""At most one in this many connections may be open without a request."""
_ASKS_WITHIN_S = 20.0


class PatientHttp(H11Protocol):
    """Closes connections that send no request: after a while, or the oldest at once if there are many. They would use up the
    connections that a reader needs.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] uvicorn names the type of transport that it is given
        super().connection_made(transport)
        self.opened: int = next(_opened)
        self.loop.call_later(_ASKS_WITHIN_S, self._close_if_idle)
        idle = [other for other in self.connections if isinstance(other, PatientHttp) and other.asks_nothing]
        if self.limit_concurrency and len(idle) > self.limit_concurrency // _IDLE_SHARE:
            oldest = min(idle, key=attrgetter("opened"))
            oldest._close_if_idle()  # noqa: SLF001 - one of its own kind

    @property
    def asks_nothing(self) -> bool:
        """No complete request has arrived yet."""
        return cast("object", self.cycle) is None  # its annotation says that there always is one

    def _close_if_idle(self) -> None:
        if self.asks_nothing and not self.transport.is_closing():
            self.connections.discard(self)
            self.transport.close()


_opened = count()


def quiet_config(app: ASGIApp, connections: int, lifespan: Literal["on", "off"] = "off") -> uvicorn.Config:
    """For a server on loopback that prints nothing itself."""
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=PatientHttp,
        ws="none",
        lifespan=lifespan,
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,  # there is no proxy, so nobody may claim another client address
        server_header=False,
        limit_concurrency=connections,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )


async def _serve(
    bound: BoundSocket,
    watch: FolderWatch,
    begun: Callable[["_Server"], None] | None = None,
    history: Sequence[Route] = (),
) -> None:
    config = quiet_config(TokenGate(make_app(watch, history), bound.port, bound.token), _MAX_CONNECTIONS)
    watching = asyncio.create_task(watch.run())
    server = _Server(config, watch, watching)
    if begun:
        begun(server)
    await server.serve(sockets=[bound.socket])
    with contextlib.suppress(asyncio.CancelledError):
        await watching  # raises whatever ended it, unless we did


class _Server(uvicorn.Server):
    """Stops when the watch stops: otherwise it would show outdated pages forever."""

    def __init__(self, config: uvicorn.Config, watch: FolderWatch, watching: "asyncio.Task[None]") -> None:
        super().__init__(config)
        self._watch, self._watching = watch, watching
        watching.add_done_callback(self._leave)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends streams and workers first: uvicorn waits for streams, and a signal that it raises again may end us."""
        self._watching.cancel()
        await self._watch.stop()
        await super().shutdown(sockets)

    def _leave(self, _: "asyncio.Task[None]") -> None:
        self.should_exit = True
