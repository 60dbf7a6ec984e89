"""The connection to an endpoint: which headers are sent, how much may come back, and failures in one line.

Proxies from the environment and `.netrc` are ignored: evidence goes only to the named host. Of the environment, only
`SSL_CERT_FILE` and `SSL_CERT_DIR` are used. Redirects are not followed. Failure messages contain the host and a reason: no key,
no body, no traceback.
"""

import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import httpx2
from pydantic_ai.exceptions import ContentFilterError, ModelAPIError, ModelHTTPError, UserError

from forkpoint import __version__
from forkpoint.agent.providers import Address
from forkpoint.report.escape import escape

MOST_BYTES: Final = 8 << 20
"""Limit of one answer; reading stops there. A hypothesis has about ten thousand."""

_SENT: Final = frozenset(
    {
        "accept",
        "anthropic-beta",
        "anthropic-version",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "x-api-key",
    }
)
"""Headers that the answer depends on. Clients add others, which describe this machine or come from the environment."""
_KEYS: Final = ("authorization", "x-api-key")


class BrokenAnswer(Exception):
    """An answer that cannot be read. The text continues `HOST: `."""


def open_http(trusted: ssl.SSLContext, within_s: float, *, with_key: bool) -> httpx2.AsyncClient:
    """For one request and its retries: a client belongs to one event loop."""
    plain = httpx2.AsyncHTTPTransport(verify=trusted, trust_env=False)
    return httpx2.AsyncClient(
        transport=_Guarded(plain, with_key=with_key), timeout=within_s, trust_env=False, follow_redirects=False
    )


class _Guarded(httpx2.AsyncBaseTransport):
    def __init__(self, plain: httpx2.AsyncBaseTransport, *, with_key: bool) -> None:
        self._plain = plain
        self._sent = _SENT if with_key else _SENT.difference(_KEYS)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        for name in set(request.headers) - self._sent:
            del request.headers[name]
        request.headers["user-agent"] = f"forkpoint/{__version__}"
        request.headers["accept-encoding"] = "identity"
        response = await self._plain.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Counted(response.stream, _unreadable(response))
        return response

    async def aclose(self) -> None:
        await self._plain.aclose()


def _unreadable(response: httpx2.Response) -> str | None:
    """Why the body must not be read, or None. A compressed body is refused: a few bytes could expand without limit."""
    if response.is_redirect:
        return f"redirects elsewhere (status {response.status_code}), which is not followed"
    packed = response.headers.get("content-encoding", "identity").lower()
    if packed != "identity":
        return f"sent a compressed answer ({packed}), which was not asked for"
    kind = response.headers.get("content-type", "no content type").lower()
    if response.is_success and not kind.startswith("text/event-stream"):
        return f"sent {kind} instead of a stream of events: is the path right, as in /v1?"
    return None


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, unreadable: str | None) -> None:
        self._stream = stream
        self._unreadable = unreadable

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._unreadable:
            raise BrokenAnswer(self._unreadable)
        read = 0
        async for chunk in self._stream:
            read += len(chunk)
            if read > MOST_BYTES:
                raise BrokenAnswer(f"sent more than {MOST_BYTES >> 20} MiB for one answer")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


_LONGEST: Final = 200
"""Characters of an endpoint's error message."""

_STATUSES: Final = {
    400: "rejected the request",
    404: "has no such model or path",
    408: "gave up waiting",
    413: "says the request is too long",
    422: "rejected the request",
    429: "asks to slow down, or the quota is spent",
    529: "is overloaded",
}


def failure_line(address: Address, reason: str) -> str:
    return escape(f"{address.host}: {reason}")


def reason_for(problem: BaseException, address: Address) -> str:
    for cause in _chain(problem):
        match cause:
            case BrokenAnswer():
                return _short(str(cause), address)
            case ContentFilterError():
                return "refused to answer"
            case ModelHTTPError():
                return _status(cause, address)
            case UserError():
                return f"does not support this request: {_short(str(cause), address)}"
            case json.JSONDecodeError() | UnicodeDecodeError():
                return "sent something that is not JSON"
            case _:
                pass
    return _connection(problem) or _told_by_endpoint(problem, address) or "violated the protocol"


def _status(problem: ModelHTTPError, address: Address) -> str:
    code = problem.status_code
    if code in {401, 403}:
        if address.key_variable:
            return f"did not accept the key in {address.key_variable} (status {code})"
        return f"requires a key (status {code}): name its variable with --key-variable"
    reason = _STATUSES.get(code, "failed" if code >= 500 else "refused")
    told = _message_in(problem.body)
    return f"{reason} (status {code}){': ' + _short(told, address) if told else ''}"


def _connection(problem: BaseException) -> str | None:
    for cause in _chain(problem):
        match cause:
            case ConnectionRefusedError():
                return "connection refused: nothing listens there"
            case socket.gaierror():
                return "no such host"
            case ssl.SSLError():
                return f"no trusted connection ({cause.reason or 'TLS failed'})"
            case httpx2.RemoteProtocolError() | httpx2.ReadError() | ConnectionResetError():
                return "the connection ended before the answer did"
            case _:
                pass
    return "cannot be reached" if any(isinstance(cause, OSError) for cause in _chain(problem)) else None


def _told_by_endpoint(problem: BaseException, address: Address) -> str | None:
    """The text of an error inside a stream, or of one raised by pydantic-ai."""
    if not isinstance(problem, ModelAPIError):
        return None
    told = _message_in(problem.body) or problem.message
    return f"failed: {_short(told, address)}"


def _message_in(body: Any) -> str | None:
    """The message in an error body; providers nest it differently."""
    match body:
        case {"error": {"message": str(message)}} | {"message": str(message)} | {"error": str(message)}:
            return message
        case _:
            return None


def _short(text: str, address: Address) -> str:
    """One line without the key, removed before cutting, because an endpoint may echo it."""
    line = " ".join(address.scrub(text).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _chain(problem: BaseException) -> Iterator[BaseException]:
    """The exception and its causes, including members of groups."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [problem]
    while waiting:
        cause = waiting.pop(0)
        if cause is None or cause in seen:
            continue
        seen.append(cause)
        yield cause
        waiting += cause.exceptions if isinstance(cause, BaseExceptionGroup) else []
        waiting += [cause.__cause__, cause.__context__]
