"""Who may ask, and what is answered: the list of incidents, a page, and the stream that makes a page reload.

Only a browser on this machine with the token is answered, under this server's own name. Host is checked because a page
elsewhere can point its name at 127.0.0.1 (DNS rebinding), Origin because a page elsewhere can send requests here.
"""

import time
from collections.abc import AsyncIterator, Sequence
from hmac import compare_digest
from html import escape as as_html
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forkpoint.live.children import NotDiagnosed
from forkpoint.live.serve.watch import LIST, FolderWatch, IncidentPage, ShownIncident, events_of
from forkpoint.report.escape import escape
from forkpoint.report.page import Live, write_live, write_policy
from forkpoint.report.page_data import MAX_LONG_TEXT, MAX_TEXT, bounded

# ---------------------------------------------------------------------------------------------------------------------
# The pages besides the report: the list of incidents, and a message if there is no report.

WELCOME = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'; form-action 'none'">
<meta http-equiv="refresh" content="0; url=/">
<title>forkpoint</title>
<p><a href="/">On to the report</a></p>
"""
"""Redirects to the start page, without the token in the address."""

HISTORY = "/history"
"""Where the page of a store is, beside those of a folder."""
_HEADINGS = ("Incident", "Cause", "Suspects", "Confidence", "Last seen", "What happened")


def render_list(
    root: str, incidents: Sequence[ShownIncident], left_out: int, events: str, history: str | None = None
) -> str:
    """`history`: the address of the page of a store."""
    head = "".join(f'<th scope="col">{heading}</th>' for heading in _HEADINGS)
    rows = "\n".join(map(_row, incidents))
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    nothing = '<p class="faint">No evidence here yet. Files that are put there will be shown.</p>'
    more = f'<p class="faint">and {left_out} older ones: serve a folder with fewer</p>' if left_out else ""
    title = f"Incidents in {_text(Path(root).name)}"
    link = f'<p><a href="{history}">History of all incidents</a></p>' if history else ""
    return _page(title, f"<h1>{title}</h1>\n{link}\n{table if incidents else nothing}\n{more}", events)


def render_message(title: str, text: str, events: str | None) -> str:
    """`events`: None if the page never changes."""
    body = f'<h1>{_text(title)}</h1>\n<p>{_text(text, MAX_LONG_TEXT)}</p>\n<p><a href="/">All incidents</a></p>'
    return _page(_text(title), body, events)


def _row(shown: ShownIncident) -> str:
    name, result = _text(shown.folder.name), shown.result
    if not isinstance(result, IncidentPage):
        kind, says = ("problem", _text(result.why, MAX_LONG_TEXT)) if result else ("faint", "being read")
        return f'<tr><td class="name">{name}</td><td class="{kind}" colspan="{len(_HEADINGS) - 1}">{says}</td></tr>'
    cells = (
        ("name", f'<a href="/incidents/{shown.folder.key}">{name}</a>'),
        ("cause", _text(result.cause)),
        ("suspects", _text(result.suspects) or "-"),
        ("confidence", f"{result.confidence:.2f}"),
        ("when", _when(result.when, shown.folder.newest)),
        ("headline", _text(result.headline)),
    )
    return "".join(["<tr>", *(f'<td class="{kind}">{cell}</td>' for kind, cell in cells), "</tr>"])


def _when(utc: str | None, newest: float) -> str:
    """What the evidence says, or else the time of its newest file, which a copy may have changed."""
    if utc:
        return _text(utc)
    return f"file of {time.strftime('%Y-%m-%d %H:%M', time.gmtime(newest))}Z"


def _page(title: str, body: str, events: str | None) -> str:
    style = Path(__file__).with_name("list.css").read_text("utf-8")
    live = "" if events is None else write_live(Live(events))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{write_policy(style, live=events is not None)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>forkpoint</header>
<main>
{body}
</main>
{live}</body>
</html>
"""


def _text(text: str, limit: int = MAX_TEXT) -> str:
    """Untrusted input as harmless text of a page."""
    return as_html(bounded(escape(text), limit))


# ---------------------------------------------------------------------------------------------------------------------
# Answers: the list, an incident's page, and the stream that tells a page to reload.

_SIGN_OF_LIFE_S = 15.0
"""Proxies and laptops that slept give up on a silent stream after half a minute or more."""


def make_app(watch: FolderWatch, history: Sequence[Route] = ()) -> Starlette:
    """`history`: the routes of a store's page."""

    async def show_start(_: Request) -> Response:
        shown = watch.shown()
        if watch.folders.alone and shown and isinstance(shown[0].result, IncidentPage):
            return HTMLResponse(shown[0].result.html)
        events = events_of(LIST, watch.version(LIST))
        link = HISTORY if history else None
        return HTMLResponse(render_list(watch.root, shown, watch.folders.left_out, events, link))

    async def show_incident(request: Request) -> Response:
        key = request.path_params["key"]
        shown = next((shown for shown in watch.shown() if shown.folder.key == key), None)
        if shown is None:
            raise HTTPException(404)
        return _show(shown)

    async def stream_events(request: Request) -> Response:
        page, seen = (request.query_params.get(name, "") for name in ("page", "seen"))
        # For HEAD the stream would be silent and endless.
        stream = _events(watch, page, seen) if request.method == "GET" else _nothing()
        return StreamingResponse(stream, media_type="text/event-stream")

    routes = [
        *history,
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
    """Sends one event when the page has changed since `seen`. The page then reloads and asks again."""
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
    return HTMLResponse(render_message("Not found", "There is no such incident; it may have been removed.", None), 404)


# ---------------------------------------------------------------------------------------------------------------------
# Who may ask. No request can change anything.

_METHODS = ("GET", "HEAD")
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class TokenGate:
    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self._app = app
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self._token = token
        # Browsers send cookies to every port of a host: a second forkpoint must not overwrite this cookie.
        self._cookie = f"forkpoint-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._refuse_or_welcome(Request(scope)) or self._app
        await answer(scope, receive, send_guarded)

    def _refuse_or_welcome(self, request: Request) -> Response | None:
        """None: the request may pass."""
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return _refuse("this server is called 127.0.0.1 or localhost, with its port")
        if any(origin != f"http://{hosts[0].lower()}" for origin in origins):
            return _refuse("other pages may not ask here")
        if request.method not in _METHODS:
            return PlainTextResponse("only GET and HEAD\n", 405, {"Allow": ", ".join(_METHODS)})
        if request.scope["path"] == "/" and "token" in request.query_params:
            return self._welcome(request.query_params["token"])
        if not self._is_token(request.cookies.get(self._cookie, "")):
            return _refuse("open the address that forkpoint serve has printed, with its token")
        return None

    def _welcome(self, token: str) -> Response:
        """Sets the cookie with a page that links on, not with a redirect: coming from another site (a terminal in a
        browser), a browser would follow a redirect without the cookie. The token disappears from the address bar.
        """
        if not self._is_token(token):
            return _refuse("wrong token; forkpoint serve has printed the right one")
        answer = HTMLResponse(WELCOME)
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return answer

    def _is_token(self, text: str) -> bool:
        return compare_digest(text.encode("utf-8", "backslashreplace"), self._token.encode())


def _refuse(why: str) -> Response:
    return PlainTextResponse(f"forkpoint: {why}\n", 403)
