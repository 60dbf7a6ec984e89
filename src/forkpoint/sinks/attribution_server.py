"""The attribution service from its socket to its end."""

import uvicorn

from forkpoint.serve.server import BoundSocket, quiet_config
from forkpoint.sinks.attribution import Readable, make_app

_MAX_CONNECTIONS = 50


def serve(bound: BoundSocket, readable: Readable) -> None:
    """Until Ctrl-C or SIGTERM, which uvicorn raises again once all has ended."""
    config = quiet_config(make_app(readable, bound.token), _MAX_CONNECTIONS)
    uvicorn.Server(config).run(sockets=[bound.socket])
