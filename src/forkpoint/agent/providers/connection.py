"""The connection to an endpoint: what goes out, and how much may come back.

The environment's proxies and `.netrc` are not used: evidence goes to the host that was named and to no other. Of the
environment only `SSL_CERT_FILE` and `SSL_CERT_DIR` count, which say whom to trust. Redirects are not followed.
"""

import ssl
from collections.abc import AsyncIterator
from typing import Final

import httpx2

from forkpoint import __version__

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
