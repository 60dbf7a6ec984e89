"""The attribution service from its socket to its end."""

import uvicorn

from forkpoint.serve.server import Bound
from forkpoint.sinks.attribution import Readable, make_app

_MAX_CONNECTIONS = 50
_LAST_WORDS_S = 2


def serve(bound: Bound, readable: Readable) -> None:
    """Until Ctrl-C or SIGTERM, which uvicorn raises again once all has ended."""
    config = uvicorn.Config(
        make_app(readable, bound.token),
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,  # nobody stands in front, so nobody may say who asks
        server_header=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=_LAST_WORDS_S,
    )
    uvicorn.Server(config).run(sockets=[bound.socket])
