"""A model on loopback that says what a test wrote: OpenAI chat and responses, Anthropic messages, whole or streamed.

    with ScriptedServer([calls("cohorts"), calls("slots", seq=9), says("done")]) as server:
        model = connect("openai-compatible:scripted", server.url, None, Style.TOOLS)
        ...
    assert server.requests[0].offered == ("progress", "cohorts")

A script is any iterable of steps: a Reply (made by `says` and `calls`), a fault, or a function that is given the Request
and returns one of these. `itertools.repeat(step)` never ends. When the script is over the server answers 400, which no
client asks for again. A step is used up by each request, so also by a client's own retry.

The same script serves all wires and both styles: a request that offers no tools, but has the schema of calls to keep to,
is answered with that JSON. `server.url` is the endpoint to give, for Anthropic `server.anthropic_url`.
"""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Self

from agent.scripted_wires import WIRES, Body, Wire, as_json, called_in
from forkpoint.agent.model import Call, Reply, Usage

SPENT = Usage(100, 20)
"""What every reply is said to have cost, in tokens."""


def says(text: str, usage: Usage = SPENT) -> Reply:
    return Reply(text, (), usage)


def calls(tool: str, /, **arguments: Any) -> Reply:
    """One tool call. For several in one reply, or text beside it, see `both`."""
    return writes(tool, json.dumps(arguments))


def writes(tool: str, arguments: str) -> Reply:
    """One tool call with exactly these arguments, JSON or not."""
    return Reply("", (Call("call_0", tool, arguments),), SPENT)


def both(*replies: Reply) -> Reply:
    """All of them as one reply."""
    each = tuple(call for reply in replies for call in reply.calls)
    numbered = tuple(replace(call, id=f"call_{n}") for n, call in enumerate(each))
    return Reply("".join(reply.text for reply in replies), numbered, replies[0].usage)


@dataclass(frozen=True, slots=True)
class Status:
    """An HTTP error with the provider's kind of body."""

    code: int
    message: str = "scripted"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Raw:
    """200 with this body, whatever it is."""

    body: bytes
    content_type: str = "text/event-stream"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Silent:
    """Takes the request and sends not even headers."""


@dataclass(frozen=True, slots=True)
class Trickle:
    """Sends a line that means nothing every `every_s`, for ever: no read ever times out."""

    every_s: float = 0.02


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends after so many events of the reply, as if that were all."""

    reply: Reply
    events: int


@dataclass(frozen=True, slots=True)
class OutOfTokens:
    """All of the reply that the limit on tokens allowed."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Flood:
    """One event, or one error body, that never ends."""

    status: int = 200


@dataclass(frozen=True, slots=True)
class HangUp:
    """The connection is closed without a word."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model will not answer, and says so in the provider's own way."""

    text: str = "I will not help with this."


Fault = Status | Raw | Silent | Trickle | Cut | OutOfTokens | Flood | HangUp | Refusal
Said = Reply | Fault


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: Body

    @property
    def wire(self) -> Wire:
        return next(wire for end, wire in WIRES.items() if self.path.endswith(end))

    @property
    def offered(self) -> tuple[str, ...]:
        """Names of what may be called, in either style."""
        schema = self.wire.schema_in(self.body)
        return called_in(schema) if schema else self.wire.tools_in(self.body)

    @property
    def text(self) -> str:
        """All that was said so far, instructions included: every string of the body, one per line."""
        return "\n".join(_strings({key: value for key, value in self.body.items() if key != "tools"}))

    @property
    def last(self) -> str:
        """The newest message alone: what was asked last, or the results of the last calls."""
        return "\n".join(_strings((self.body.get("messages") or self.body["input"])[-1]))


Step = Said | Callable[[Request], Said]


def _strings(node: Any) -> Iterable[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, list):
        for item in node:
            yield from _strings(item)
    elif isinstance(node, dict):
        for item in node.values():
            yield from _strings(item)


class ScriptedServer:
    def __init__(self, script: Iterable[Step]) -> None:
        self.requests: list[Request] = []
        """All that came, in order, retries included."""
        self._script = iter(script)
        self._lock = Lock()
        self.closing = Event()
        self._http = _Http(self)
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"{self.anthropic_url}/v1"

    @property
    def anthropic_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def next_said(self, request: Request) -> Said:
        with self._lock:
            self.requests.append(request)
            step = next(self._script, Status(400, "the script is over"))
        return step(request) if callable(step) else step

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, server: ScriptedServer) -> None:
        self.scripted = server
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Http

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = Request(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        self.close_connection = True
        with suppress(ConnectionError):  # who asked has heard enough
            self._answer(request, self.server.scripted.next_said(request))

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def _answer(self, request: Request, said: Said) -> None:
        match said:
            case Reply():
                self._reply(request, said)
            case Refusal(text):
                self._send(200, "text/event-stream", *request.wire.refusal(text))
            case Cut(reply, events):
                self._send(200, "text/event-stream", *list(request.wire.events(reply))[:events])
            case OutOfTokens(reply):
                self._send(200, "text/event-stream", *request.wire.events(reply, out_of_tokens=True))
            case Status(code, message, headers):
                error = json.dumps(request.wire.error(code, message)).encode()
                self._send(code, "application/json", error, headers=headers)
            case Raw(body, content_type, headers):
                self._send(200, content_type, body, headers=headers)
            case Silent():
                self.server.scripted.closing.wait()
            case Trickle() | Flood():
                self._without_end(said)
            case HangUp():
                pass

    def _reply(self, request: Request, reply: Reply) -> None:
        if request.wire.schema_in(request.body) and reply.calls:
            reply = replace(reply, text="".join(as_json(call) for call in reply.calls), calls=())
        if request.body.get("stream"):
            self._send(200, "text/event-stream", *request.wire.events(reply))
        else:
            self._send(200, "application/json", json.dumps(request.wire.whole(reply)).encode())

    def _send(self, status: int, kind: str, *parts: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
        self._head(status, kind, headers)
        for part in parts:
            self.wfile.write(part)

    def _head(self, status: int, kind: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Connection", "close"), *headers):
            self.send_header(name, value)
        self.end_headers()

    def _without_end(self, said: Trickle | Flood) -> None:
        closing = self.server.scripted.closing
        if isinstance(said, Trickle):
            self._head(200, "text/event-stream")
            while not closing.wait(said.every_s):
                self.wfile.write(b": \n")
        else:
            self._head(said.status, "text/event-stream" if said.status == 200 else "application/json")
            self.wfile.write(b'data: {"id": "')
            while not closing.is_set():
                self.wfile.write(b"x" * 65536)
