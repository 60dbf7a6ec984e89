"""`forkpoint mcp`: serves a case to any coding agent over the Model Context Protocol."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forkpoint.cli.options import Command, add_source_argument, directory, existing_path, port
from forkpoint.cli.output import check_outputs, needing_extra, say
from forkpoint.errors import UsageError

if TYPE_CHECKING:
    from mcp.server import Server

_DESCRIPTION = """\
Let a coding agent (Claude Code, Codex, Cursor, Gemini, any MCP client) ask about
a case: tools that only read, resources, the workflow as a prompt. What the agent
claims is checked against the evidence; the verdict is the one that diagnose gives.

With PATH the case is open from the start, and no other can be opened. Without,
the agent opens cases, inside --root only.

It uses standard input and output, as clients start it. With --http it listens
on 127.0.0.1 at /mcp and requires a token: random and printed, or yours in
FORKPOINT_MCP_TOKEN. Texts are redacted before they leave; nothing of the job is
run, and nothing is written (except --record) or sent elsewhere.

Needs more packages: pip install 'forkpoint[mcp]'
"""


def run(args: Namespace) -> int:
    if args.paths and args.root is not None:
        raise UsageError("--root and PATH exclude each other: --root says where an agent may open cases")
    if args.source and not args.paths:
        raise UsageError("--source needs PATH: give both, or let the agent name them inside --root")
    with needing_extra("mcp", "mcp"):
        from forkpoint.agent.mcp.desk import Desk
        from forkpoint.agent.mcp.server import log_to_stderr, make_server, serve_stdio
    log_to_stderr()
    desk = Desk()
    if args.paths:
        desk.open(args.paths, args.source)
    check_outputs(args, "record")
    record = None if args.record is None else Path(args.record)
    server = make_server(desk, None if args.paths else Path(args.root or ".").resolve(), record, args.store)
    with suppress(KeyboardInterrupt):  # the normal way to end
        if args.http is None:
            serve_stdio(server)
        else:
            _serve_http(server, args.http)
    return 0


def _serve_http(server: "Server[Any]", port: int) -> None:
    from forkpoint.agent.mcp.server import TOKEN_VARIABLE, bind, serve_http

    bound = bind(port)
    token = f"as in {TOKEN_VARIABLE}" if bound.chosen else bound.token
    say(f"{bound.url} requires Authorization: Bearer {token}")
    serve_http(server, bound)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", type=_path, metavar="PATH", help="file or folder of the case")
    add_source_argument(parser)
    parser.add_argument(
        "--root", type=directory, metavar="DIR", help="where the agent may open cases (default: the current folder)"
    )
    parser.add_argument("--record", metavar="FILE", help="append every question and answer to this file, as JSON lines")
    parser.add_argument(
        "--store", metavar="URL", help="also let it ask for earlier incidents in this store (docs/history.md)"
    )
    parser.add_argument("--http", type=port, metavar="PORT", help="listen on 127.0.0.1 instead; 0 takes any free port")


def _path(path: str) -> str:
    if path == "-":
        raise ArgumentTypeError("-: standard input belongs to the protocol")
    return existing_path(path)


COMMAND = Command(
    name="mcp",
    help="let a coding agent ask about a case, with every claim checked",
    description=_DESCRIPTION,
    add_arguments=_add_arguments,
    run=run,
)
