"""`forkpoint mcp`: the case for anyone's coding agent, over the Model Context Protocol."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forkpoint.cli.command import Command
from forkpoint.cli.diagnose import add_source_argument
from forkpoint.cli.option_values import folder, port
from forkpoint.errors import UsageError

if TYPE_CHECKING:
    from mcp.server import Server

_DESCRIPTION = """\
Let a coding agent (Claude Code, Codex, Cursor, Gemini, any MCP client) ask about
a case: tools that only read, resources, the workflow as a prompt. What the agent
claims is checked against the evidence; the verdict stands as diagnose gives it.

With PATH the case is open from the start, and no other can be opened. Without,
the agent opens cases, inside --root only.

It speaks over standard input and output, as clients start it. With --http it
listens on 127.0.0.1 at /mcp, and wants a token: random and printed, or yours in
FORKPOINT_MCP_TOKEN. Texts are redacted before they leave; nothing is run,
written or sent elsewhere.

Needs more packages: pip install 'forkpoint[mcp]'
"""


def run(args: Namespace) -> int:
    if args.paths and args.root is not None:
        raise UsageError("--root says where an agent may open cases: leave it out, or leave PATH out")
    if args.source and not args.paths:
        raise UsageError("--source belongs to PATH: give both, or let the agent name them inside --root")
    try:
        from forkpoint.agent.mcp.desk import Desk
        from forkpoint.agent.mcp.log import log_to_stderr
        from forkpoint.agent.mcp.server import make_server
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "forkpoint":
            raise
        raise UsageError(f"mcp needs {package}: pip install 'forkpoint[mcp]'") from error
    log_to_stderr()
    desk = Desk()
    if args.paths:
        desk.open(args.paths, args.source)
    server = make_server(desk, None if args.paths else Path(args.root or ".").resolve())
    try:
        if args.http is None:
            from forkpoint.agent.mcp.stdio import serve_stdio

            serve_stdio(server)
        else:
            _serve_http(server, args.http)
    except KeyboardInterrupt:  # how it is meant to end
        return 0
    return 0


def _serve_http(server: "Server[Any]", port: int) -> None:
    from forkpoint.agent.mcp.http import TOKEN_VARIABLE, bind, serve_http

    bound = bind(port)
    token = f"as in {TOKEN_VARIABLE}" if bound.chosen else bound.token
    print(f"forkpoint: {bound.url} wants Authorization: Bearer {token}", file=sys.stderr, flush=True)
    serve_http(server, bound)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", type=_path, metavar="PATH", help="file or folder of the case")
    add_source_argument(parser)
    parser.add_argument(
        "--root", type=folder, metavar="DIR", help="where the agent may open cases (default: the current folder)"
    )
    parser.add_argument(
        "--http", type=port, metavar="PORT", help="listen on 127.0.0.1 instead; 0 takes a port that is free"
    )


def _path(path: str) -> str:
    if not Path(path).exists():
        why = "standard input belongs to the protocol" if path == "-" else "does not exist"
        raise ArgumentTypeError(f"{path}: {why}")
    return path


COMMAND = Command(
    name="mcp",
    help="let a coding agent ask about a case, with every claim checked",
    description=_DESCRIPTION,
    add_arguments=_add_arguments,
    run=run,
)
