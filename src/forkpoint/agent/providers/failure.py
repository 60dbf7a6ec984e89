"""Why there is no reply, in one line: the host, and a reason. No key, no body, no traceback."""

import json
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Final

import httpx2
from pydantic_ai.exceptions import ContentFilterError, ModelAPIError, ModelHTTPError, UserError

from forkpoint.agent.providers.address import Address
from forkpoint.agent.providers.connection import BrokenAnswer
from forkpoint.report.escape import escape

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


def say(address: Address, reason: str) -> str:
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
    return _connection(problem) or _told(problem, address) or "did not keep to the protocol"


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


def _told(problem: BaseException, address: Address) -> str | None:
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
