"""One HTTP request to a service: uses proxies from the environment, follows no redirect, and reads only a bounded answer."""

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from http.client import HTTPException
from typing import IO, Final
from urllib.parse import urlsplit

from forkpoint.sinks.sink import SinkRefused, SinkUnreachable

_TRY_S: Final = 10.0
"""For one answer, unless less time is left."""
_ANSWER: Final = 4 << 20
_RETRIED: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
_MAX_QUOTED: Final = 120


@dataclass(frozen=True, slots=True)
class HttpCall:
    url: str = field(repr=False)
    body: object = None
    """Sent as JSON. None: a GET."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def post_json(call: HttpCall, limit_s: float) -> object:
    """The answer, if it is JSON. Raises SinkRefused or SinkUnreachable."""
    check_address(call.url)
    data = None if call.body is None else json.dumps(call.body).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "forkpoint"} | dict(call.headers)
    request = urllib.request.Request(call.url, data, headers)  # noqa: S310 - the scheme was checked
    try:
        with urllib.request.build_opener(_NoRedirect()).open(request, timeout=min(_TRY_S, limit_s)) as answer:
            return _json(answer.read(_ANSWER))
    except urllib.error.HTTPError as error:
        with error:
            raise _of_status(error) from error
    except urllib.error.URLError as error:
        raise _of_reason(error.reason) from error
    except ssl.SSLError as error:
        raise _of_reason(error) from error
    except (OSError, HTTPException) as error:
        raise SinkUnreachable(str(error) or type(error).__name__) from error


def check_address(url: str) -> None:
    """Raises SinkRefused without naming the address, which is often a secret."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable, parts = False, urlsplit("")
    if not usable or "@" in parts.netloc or not url.isascii() or not url.isprintable() or " " in url:
        raise SinkRefused("its address must be http or https, without a user or password in it")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A request contains secrets and the job's paths: it goes to its address, or nowhere."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        del req, fp, code, msg, headers, newurl


def _of_status(error: urllib.error.HTTPError) -> SinkRefused | SinkUnreachable:
    why = f"status {error.code}{_quoted(error)}"
    wait_s = _retry_after(error.headers.get("Retry-After"))
    limited = error.code == HTTPStatus.FORBIDDEN and wait_s is not None  # GitHub's secondary rate limit
    if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.code in _RETRIED or limited:
        return SinkUnreachable(why, wait_s)
    return SinkRefused(f"{why}, a redirect that is not followed" if 300 <= error.code < 400 else why)


def _of_reason(reason: str | BaseException) -> SinkRefused | SinkUnreachable:
    """An invalid certificate is not retried."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return SinkRefused(f"its certificate is not trusted ({reason.verify_message})")
    if isinstance(reason, ssl.SSLError):
        return SinkRefused(f"no TLS connection ({reason.reason or type(reason).__name__})")
    return SinkUnreachable(str(reason) or type(reason).__name__)


def _retry_after(told: str | None) -> float | None:
    """Seconds. A date is ignored: clocks differ, and the pause doubles anyway."""
    return float(told) if told and told.isascii() and told.isdecimal() else None


def _quoted(error: urllib.error.HTTPError) -> str:
    """The beginning of the answer: `invalid_token` says more than 403."""
    try:
        said = error.read(_MAX_QUOTED * 4).decode("utf-8", "replace")
    except (OSError, HTTPException):
        return ""
    words = " ".join(said.split())
    return f" ({words[:_MAX_QUOTED]})" if words else ""


def _json(answer: bytes) -> object:
    try:
        return json.loads(answer)
    except ValueError:
        return None
