"""Answers: the list, an incident's page, and the stream that tells a page to load itself again."""

from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from forkpoint.live.diagnosing import NotDiagnosed
from forkpoint.serve.diagnosis import IncidentPage
from forkpoint.serve.list_page import render_list, render_message
from forkpoint.serve.watch import LIST, FolderWatch, ShownIncident, events_of

_SIGN_OF_LIFE_S = 15.0
"""Proxies and laptops that slept give up on a silent stream after half a minute or more."""


def make_app(watch: FolderWatch) -> Starlette:
    async def show_start(_: Request) -> Response:
        shown = watch.shown()
        if watch.folders.alone and shown and isinstance(shown[0].result, IncidentPage):
            return HTMLResponse(shown[0].result.html)
        events = events_of(LIST, watch.version(LIST))
        return HTMLResponse(render_list(watch.root, shown, watch.folders.left_out, events))

    async def show_incident(request: Request) -> Response:
        key = request.path_params["key"]
        shown = next((shown for shown in watch.shown() if shown.folder.key == key), None)
        if shown is None:
            raise HTTPException(404)
        return _show(shown)

    async def stream_events(request: Request) -> Response:
        page, seen = (request.query_params.get(name, "") for name in ("page", "seen"))
        # To HEAD the stream would be silent and without end.
        stream = _events(watch, page, seen) if request.method == "GET" else _nothing()
        return StreamingResponse(stream, media_type="text/event-stream")

    routes = [
        Route("/", show_start),
        Route("/incidents/{key}", show_incident),
        Route("/events", stream_events),
    ]
    return Starlette(routes=routes, exception_handlers={404: _not_found})


def _show(shown: ShownIncident) -> Response:
    if isinstance(shown.result, IncidentPage):
        return HTMLResponse(shown.result.html)
    text = shown.result.why if isinstance(shown.result, NotDiagnosed) else "Being read."
    return HTMLResponse(render_message(shown.folder.name, text, events_of(shown.folder.key, shown.version)))


async def _events(watch: FolderWatch, page: str, seen: str) -> AsyncIterator[str]:
    """One event, when the page is no longer what it has seen. The page then loads itself again, and asks anew."""
    yield ": watching\n\n"
    while not watch.closed:
        if watch.version(page) != seen:
            yield "event: changed\ndata: \n\n"
            return
        await watch.news(_SIGN_OF_LIFE_S)
        yield ": still here\n\n"


async def _nothing() -> AsyncIterator[str]:
    return
    yield


def _not_found(_: Request, __: Exception) -> Response:
    return HTMLResponse(render_message("Not here", "There is no such incident; it may have been removed.", None), 404)
