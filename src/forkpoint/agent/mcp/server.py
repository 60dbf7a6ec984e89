"""The MCP server: tools, resources and a prompt, over stdio, or over streamable HTTP on loopback.

Built on the SDK's low-level server, so that all schemas and errors are ours. The text of an exception reaches the peer only if
it was written for peers. Over HTTP a request needs the token and this server's own host name: the SDK checks Host and Origin
(against DNS rebinding and requests from web pages); the token keeps out other users of the same machine.
"""

import json
import logging
import os
import socket
from dataclasses import dataclass
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import Any

import anyio
import mcp_types as wire
import uvicorn
from anyio import fail_after
from anyio.to_thread import run_sync
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from forkpoint import __version__
from forkpoint.agent.case import Wire
from forkpoint.agent.mcp.desk import Desk, Opened, confine, confine_source
from forkpoint.agent.mcp.questions import (
    INSTRUCTIONS,
    INVESTIGATE,
    RESOURCES,
    TEMPLATES,
    Changes,
    McpQuestion,
    More,
    OpenCase,
    questions,
    read_resource,
)
from forkpoint.brief import write_brief
from forkpoint.brief.case import QuestionRefused
from forkpoint.errors import ForkpointError, UsageError
from forkpoint.live.serve.server import bind as bind_loopback
from forkpoint.live.serve.server import quiet_config
from forkpoint.report.escape import escape

LOG = logging.getLogger("forkpoint.mcp")


class _Escaped(logging.Formatter):
    """Escapes log lines: peers choose host and tool names, and evidence contains any text."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(f"forkpoint mcp: {escape(line)}" for line in super().format(record).splitlines())


def log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Escaped("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


_ANSWER_S = 60
_MAX_MISTAKES = 3
_MAX_REFUSAL = 1000
_READ_ONLY = wire.ToolAnnotations(read_only_hint=True)
_INVESTIGATE = wire.Prompt(
    name="investigate",
    title="Investigate a hang",
    description="The workflow, and the brief of the case that is open",
)
_BUG = "this is a bug in forkpoint; see the server's standard error"

Context = ServerRequestContext[Any]


def make_server(desk: Desk, root: Path | None, record: Path | None = None, store: str | None = None) -> "Server[Any]":
    """`root`: the folder in which peers may open cases; None: the case is given, and they may open none. `record`: a JSON
    lines file that gets every question and its answer. `store`: the store of earlier incidents, which is only read.
    """
    handlers = _Handlers(desk, root, record, store)
    return Server(
        "forkpoint",
        version=__version__,
        title="forkpoint",
        description="Where the ranks of a distributed PyTorch job stopped agreeing, and why",
        instructions=INSTRUCTIONS,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )


class _Handlers:
    def __init__(self, desk: Desk, root: Path | None, record: Path | None, store: str | None) -> None:
        self._desk = desk
        self._root = root
        self._record = record
        self._questions = {question.name: question for question in questions(may_open=root is not None, store=store)}

    async def list_tools(self, _: Context, __: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        return wire.ListToolsResult(tools=[_as_tool(question) for question in self._questions.values()])

    async def call_tool(self, context: Context, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        try:
            answer = await self._answer(context, params)
        except (QuestionRefused, ForkpointError) as error:
            return _turned_away(escape(str(error)))
        except TimeoutError:
            return _turned_away(f"no answer after {_ANSWER_S} s; ask for less")
        except Exception:
            LOG.exception("tool %s failed", params.name)
            return _turned_away(_BUG)
        self._note(params, answer)
        return wire.CallToolResult(content=[wire.TextContent(text=answer)])

    def _note(self, params: wire.CallToolRequestParams, answer: str) -> None:
        """Appends question and answer to the record, to review the checks later."""
        if self._record is not None:
            told = {"tool": params.name, "arguments": params.arguments or {}, "answer": answer}
            with self._record.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(told)}\n")

    async def _answer(self, context: Context, params: wire.CallToolRequestParams) -> str:
        question = self._questions.get(params.name)
        if question is None:
            raise QuestionRefused(f"no such tool; there are {', '.join(self._questions)}")
        arguments = _parsed(question, params.arguments or {})
        if isinstance(arguments, OpenCase):
            await run_sync(partial(self._open, arguments), abandon_on_cancel=True)
        opened = await self._opened(context)
        with fail_after(_ANSWER_S):
            return await run_sync(self._on_pages, question, opened, arguments, abandon_on_cancel=True)

    def _on_pages(self, question: McpQuestion, opened: Opened, arguments: Wire) -> str:
        if isinstance(arguments, More):
            return opened.pages.more(arguments.id)
        if isinstance(arguments, Changes) and arguments.paths:
            arguments = arguments.model_copy(update={"paths": self._confined(arguments.paths)})
        return opened.pages.first(question.answer(opened, arguments))

    def _confined(self, paths: list[str]) -> list[str]:
        if self._root is None:
            raise QuestionRefused(
                "this server was started for one case: start it with --root to compare it with another"
            )
        return [*confine(paths, self._root)]

    def _open(self, wanted: OpenCase) -> None:
        assert self._root is not None, "open_case is offered only with a root"
        if not wanted.paths:
            raise QuestionRefused("name at least one path: the folder with dumps, logs or stacks")
        self._desk.open(confine(wanted.paths, self._root), confine_source(wanted.source, self._root), wanted.use)

    async def _opened(self, context: Context) -> Opened:
        async def tell(done: int, total: int) -> None:
            await context.session.report_progress(done, total or None, "files read")

        return await self._desk.opened(tell)

    async def list_resources(self, _: Context, __: wire.PaginatedRequestParams | None) -> wire.ListResourcesResult:
        return wire.ListResourcesResult(resources=list(RESOURCES))

    async def list_templates(
        self, _: Context, __: wire.PaginatedRequestParams | None
    ) -> wire.ListResourceTemplatesResult:
        return wire.ListResourceTemplatesResult(resource_templates=list(TEMPLATES))

    async def read_resource(self, context: Context, params: wire.ReadResourceRequestParams) -> wire.ReadResourceResult:
        try:
            opened = await self._opened(context)
            with fail_after(_ANSWER_S):
                contents = await run_sync(read_resource, opened, params.uri, abandon_on_cancel=True)
        except (QuestionRefused, ForkpointError) as error:
            raise MCPError(wire.INVALID_PARAMS, escape(str(error))) from None
        except Exception:
            LOG.exception("a resource could not be read")
            raise MCPError(wire.INTERNAL_ERROR, _BUG) from None
        return wire.ReadResourceResult(contents=[contents])

    async def list_prompts(self, _: Context, __: wire.PaginatedRequestParams | None) -> wire.ListPromptsResult:
        return wire.ListPromptsResult(prompts=[_INVESTIGATE])

    async def get_prompt(self, context: Context, params: wire.GetPromptRequestParams) -> wire.GetPromptResult:
        if params.name != _INVESTIGATE.name:
            raise MCPError(wire.INVALID_PARAMS, f"there is one prompt: {_INVESTIGATE.name}")
        text = await self._workflow(context)
        told = wire.PromptMessage(role="user", content=wire.TextContent(text=text))
        return wire.GetPromptResult(description=_INVESTIGATE.description, messages=[told])

    async def _workflow(self, context: Context) -> str:
        """With the brief, so that an agent need not ask for it; without, if no case can be read."""
        try:
            opened = await self._opened(context)
            with fail_after(_ANSWER_S):
                brief = await run_sync(write_brief, opened.case, abandon_on_cancel=True)
        except (QuestionRefused, ForkpointError, TimeoutError):
            return INVESTIGATE
        return f"{INVESTIGATE}\n\nThe brief:\n\n{brief}"


def _as_tool(question: McpQuestion) -> wire.Tool:
    return wire.Tool(
        name=question.name,
        description=question.description,
        input_schema=question.input,
        annotations=_READ_ONLY,
    )


def _parsed(question: McpQuestion, arguments: dict[str, Any]) -> Wire:
    try:
        return question.arguments.model_validate_json(json.dumps(arguments))
    except ValidationError as error:
        # Say where and what is wrong, but do not echo what was sent: it may be anything.
        mistakes = [f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors()]
        more = f"; and {len(mistakes) - _MAX_MISTAKES} more" if len(mistakes) > _MAX_MISTAKES else ""
        raise QuestionRefused("; ".join(mistakes[:_MAX_MISTAKES]) + more) from None


def _turned_away(why: str) -> wire.CallToolResult:
    return wire.CallToolResult(content=[wire.TextContent(text=why[:_MAX_REFUSAL])], is_error=True)


def serve_stdio(server: "Server[Any]") -> None:
    anyio.run(_serve, server)


async def _serve(server: "Server[Any]") -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


# ---------------------------------------------------------------------------------------------------------------------
# Streamable HTTP on loopback. A request needs the token and this server's own host name.

TOKEN_VARIABLE = "FORKPOINT_MCP_TOKEN"  # noqa: S105 the name of a variable
_LOOPBACK = "127.0.0.1"
_MIN_TOKEN = 16
_MAX_CONNECTIONS = 50


@dataclass(frozen=True, slots=True)
class Bound:
    """A listening socket that serves nothing yet."""

    socket: socket.socket
    token: str
    chosen: bool
    """The user chose the token, so it is not printed."""

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://{_LOOPBACK}:{self.port}/mcp"


def bind(port: int) -> Bound:
    """0: any free port. Raises UsageError when the port is taken or the token is too short."""
    chosen = os.environ.get(TOKEN_VARIABLE, "")
    if chosen and len(chosen) < _MIN_TOKEN:
        raise UsageError(
            f"{TOKEN_VARIABLE} has {len(chosen)} characters: use at least {_MIN_TOKEN}, or unset it for a random one"
        )
    bound = bind_loopback(port, "--http", "0 takes any free port")
    return Bound(bound.socket, chosen or bound.token, bool(chosen))


def serve_http(server: "Server[Any]", bound: Bound) -> None:
    """Runs until Ctrl-C, then raises KeyboardInterrupt."""
    names = (f"{_LOOPBACK}:{bound.port}", f"localhost:{bound.port}")
    app = server.streamable_http_app(
        json_response=False,
        stateless_http=True,
        transport_security=TransportSecuritySettings(
            allowed_hosts=list(names), allowed_origins=[f"http://{name}" for name in names]
        ),
    )
    config = quiet_config(_Guard(app, bound.token), _MAX_CONNECTIONS, lifespan="on")
    uvicorn.Server(config).run(sockets=[bound.socket])


class _Guard:
    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._knows(Headers(scope=scope).get("authorization", "")):
            refusal = PlainTextResponse(
                "forkpoint: send Authorization: Bearer TOKEN; forkpoint mcp printed the token\n",
                401,
                {"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _knows(self, authorization: str) -> bool:
        return compare_digest(authorization.encode("latin-1", "replace"), self._expected)
