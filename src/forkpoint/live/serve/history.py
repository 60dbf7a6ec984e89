"""The page of a store, read again for each request, and a stream that tells it when the store has changed."""

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from forkpoint.errors import StoreError
from forkpoint.history.page import read_overview, render_page
from forkpoint.history.queries import Filters, stamp
from forkpoint.history.store import Store
from forkpoint.live.serve.pages import HISTORY, render_message
from forkpoint.report.page import Live

_EVERY_S = 2.0
_FILTERS = ("cause", "job", "host")


def history_routes(store: Store, is_closed: Callable[[], bool], at: str = HISTORY) -> list[Route]:
    """`is_closed`: the server is shutting down, so streams must end. `at`: the path of the page."""

    async def show(request: Request) -> Response:
        cause, job, host = (request.query_params.get(name) or None for name in _FILTERS)
        return HTMLResponse(await asyncio.to_thread(_render, store, Filters(cause=cause, job=job, host=host)))

    async def stream(request: Request) -> Response:
        seen = request.query_params.get("seen", "")
        return StreamingResponse(_events(store, seen, is_closed), media_type="text/event-stream")

    return [Route(at, show), Route(f"{HISTORY}/events", stream, methods=["GET"])]


def _render(store: Store, filters: Filters) -> str:
    try:
        seen = stamp(store)
        return render_page(read_overview(store, filters), Live(f"{HISTORY}/events?seen={seen}"))
    except StoreError as error:
        return render_message("History", str(error), None)


async def _events(store: Store, seen: str, is_closed: Callable[[], bool]) -> AsyncIterator[str]:
    """Sends one event when the store has changed since `seen`. The page then reloads and asks again."""
    while not is_closed():
        yield ": watching\n\n"
        try:
            now = await asyncio.to_thread(stamp, store)
        except StoreError:  # it may come back
            now = seen
        if now != seen:
            yield "event: changed\ndata: \n\n"
            return
        await asyncio.sleep(_EVERY_S)
