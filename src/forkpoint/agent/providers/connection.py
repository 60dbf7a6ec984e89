"""The connection to an endpoint: what goes out, how much may come back, and why there is no reply, in one line.

The environment's proxies and `.netrc` are not used: evidence goes to the host that was named and to no other. Of the
environment only `SSL_CERT_FILE` and `SSL_CERT_DIR` count, which say whom to trust. Redirects are not followed. Lines about
failures hold the host and a reason: no key, no body, no traceback.
"""

import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import httpx2
from pydantic_ai.exceptions import ContentFilterError, ModelAPIError, ModelHTTPError, UserError

from forkpoint import __version__
from forkpoint.agent.providers.address import Address
from forkpoint.report.escape import escape

MOST_BYTES: Final = 8 << 20
"""Of one answer. A hypothesis has some ten thousand; what is longer is not read on."""

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
"""Headers that an answer depends on. Clients add more: what machine this is, and what the environment tells them to."""
_KEYS: Final = ("authorization", "x-api-key")


class BrokenAnswer(Exception):
    """An answer that is not read to its end. The text goes on from `HOST: `."""


def open_http(trusted: ssl.SSLContext, within_s: float, *, with_key: bool) -> httpx2.AsyncClient:
    """For one request and its retries: a client belongs to the event loop it was made in."""
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
    """Why nothing of it is to be read. Packed, a few bytes could become any number of them."""
    if response.is_redirect:
        return f"sends elsewhere (status {response.status_code}), which is not followed"
    packed = response.headers.get("content-encoding", "identity").lower()
    if packed != "identity":
        return f"sent its answer packed ({packed}), which was not asked for"
    kind = response.headers.get("content-type", "nothing known").lower()
    if response.is_success and not kind.startswith("text/event-stream"):
        return f"sent {kind} where a stream of events was asked for: is the path right, as in /v1?"
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
"""Of what an endpoint says about its failure."""

_STATUSES: Final = {
    400: "did not take the request",
    404: "knows no such model or path",
    408: "gave up waiting",
    413: "finds the request too long",
    422: "did not take the request",
    429: "asks to slow down, or the quota is spent",
    529: "is overloaded",
}


def failure_line(address: Address, reason: str) -> str:
    """The line."""
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
                return f"cannot be asked this way: {_short(str(cause), address)}"
            case json.JSONDecodeError() | UnicodeDecodeError():
                return "sent something that is not JSON"
            case _:
                pass
    return _connection(problem) or _told_by_endpoint(problem, address) or "did not keep to the protocol"


def _status(problem: ModelHTTPError, address: Address) -> str:
    code = problem.status_code
    if code in {401, 403}:
        if address.key_variable:
            return f"did not accept the key in {address.key_variable} (status {code})"
        return f"wants a key (status {code}): name its variable with --key-variable"
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
    """An error that came inside a stream, or one that pydantic-ai words itself."""
    if not isinstance(problem, ModelAPIError):
        return None
    told = _message_in(problem.body) or problem.message
    return f"failed: {_short(told, address)}"


def _message_in(body: Any) -> str | None:
    """What providers put into an error's body, as they differ in how deep."""
    match body:
        case {"error": {"message": str(message)}} | {"message": str(message)} | {"error": str(message)}:
            return message
        case _:
            return None


def _short(text: str, address: Address) -> str:
    """Whatever an endpoint echoed, the key is not in it, nor the first half of one."""
    line = " ".join(address.scrub(text).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _chain(problem: BaseException) -> Iterator[BaseException]:
    """The exception and what led to it, groups included."""
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
