"""Over standard input and output, until the peer closes them."""

from typing import Any

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server


def serve_stdio(server: "Server[Any]") -> None:
    anyio.run(_serve, server)


async def _serve(server: "Server[Any]") -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
