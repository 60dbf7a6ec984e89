"""Who may ask: a browser on this machine that was given the token, under this server's own name.

Host is checked because a page elsewhere can point its name at 127.0.0.1 (DNS rebinding), Origin because a page elsewhere
can send requests here. Nothing a request can do changes anything.
"""

from hmac import compare_digest

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forkpoint.serve.list_page import WELCOME

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
        # Browsers send cookies to every port of a host: another forkpoint must not take this one's place.
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
        """A page that leads on, not a redirect: after a link on another site (a terminal in a browser), a browser
        would follow a redirect without the cookie. The token leaves the address.
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
