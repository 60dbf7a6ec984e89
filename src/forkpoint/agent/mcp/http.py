"""Streamable HTTP on loopback. A request needs the token and this server's own host name.

The SDK checks Host and Origin (against DNS rebinding and requests from web pages); the token keeps out other users of the
same machine.
"""

import os
import secrets
import socket
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from forkpoint.errors import UsageError
from forkpoint.live.serve.server import quiet_config

TOKEN_VARIABLE = "FORKPOINT_MCP_TOKEN"  # noqa: S105 the name of a variable
_LOOPBACK = "127.0.0.1"
_MIN_TOKEN = 16
_MAX_CONNECTIONS = 50


@dataclass(frozen=True, slots=True)
class Bound:
    """A listening socket that serves nothing yet."""

    socket: socket.socket
    token: str
    chosen: bool
    """The user chose the token, so it is not printed."""

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://{_LOOPBACK}:{self.port}/mcp"


def bind(port: int) -> Bound:
    """0: any free port. Raises UsageError when the port is taken or the token is too short."""
    chosen = os.environ.get(TOKEN_VARIABLE, "")
    if chosen and len(chosen) < _MIN_TOKEN:
        raise UsageError(
            f"{TOKEN_VARIABLE} has {len(chosen)} characters: use at least {_MIN_TOKEN}, or unset it for a random one"
        )
    try:
        listening = socket.create_server((_LOOPBACK, port))
    except OSError as error:
        raise UsageError(f"--http {port}: {os.strerror(error.errno or 0)}; 0 takes any free port") from error
    return Bound(listening, chosen or secrets.token_urlsafe(32), bool(chosen))


def serve_http(server: "Server[Any]", bound: Bound) -> None:
    """Runs until Ctrl-C, then raises KeyboardInterrupt."""
    names = (f"{_LOOPBACK}:{bound.port}", f"localhost:{bound.port}")
    app = server.streamable_http_app(
        json_response=False,
        stateless_http=True,
        transport_security=TransportSecuritySettings(
            allowed_hosts=list(names), allowed_origins=[f"http://{name}" for name in names]
        ),
    )
    config = quiet_config(_Guard(app, bound.token), _MAX_CONNECTIONS, lifespan="on")
    uvicorn.Server(config).run(sockets=[bound.socket])


class _Guard:
    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._knows(Headers(scope=scope).get("authorization", "")):
            refusal = PlainTextResponse(
                "forkpoint: send Authorization: Bearer TOKEN; forkpoint mcp printed the token\n",
                401,
                {"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _knows(self, authorization: str) -> bool:
        return compare_digest(authorization.encode("latin-1", "replace"), self._expected)
