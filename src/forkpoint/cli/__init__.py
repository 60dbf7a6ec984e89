"""The command line: one file per command, parsing and printing only. This is where errors are caught and shown."""

import argparse
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from forkpoint import __version__
from forkpoint.cli import (
    agent,
    attach,
    attribution,
    bundle,
    collect,
    demo,
    diagnose,
    doctor,
    env,
    evaluate,
    explain,
    lab,
    lint,
    mcp,
    merge,
    rehearse,
    run,
    serve,
    summarise,
    watch,
)
from forkpoint.cli.options import Command
from forkpoint.cli.output import say
from forkpoint.errors import ForkpointError, UsageError
from forkpoint.report.escape import escape

COMMANDS: tuple[Command, ...] = (
    attach.COMMAND,
    diagnose.COMMAND,
    demo.COMMAND,
    run.COMMAND,
    doctor.COMMAND,
    env.COMMAND,
    collect.COMMAND,
    bundle.COMMAND,
    summarise.COMMAND,
    merge.COMMAND,
    watch.COMMAND,
    serve.COMMAND,
    lint.COMMAND,
    rehearse.COMMAND,
    explain.COMMAND,
    lab.COMMAND,
    agent.COMMAND,
    mcp.COMMAND,
    evaluate.COMMAND,
    attribution.COMMAND,
)

_USAGE, _UNREADABLE, _CRASHED = 2, 3, 70


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="forkpoint",
        description="Find the earliest point where the ranks of a distributed training job stopped agreeing.",
        epilog="Results go to standard output, all else to standard error. `forkpoint COMMAND --help` says more.",
    )
    parser.add_argument("--version", action="version", version=f"forkpoint {__version__}")
    parsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = parsers.add_parser(
            command.name,
            help=command.help,
            description=command.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character gets its escape, not a traceback.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(argv)
        sys.stdout.flush()
    except ForkpointError as error:
        say(str(error))
        return _USAGE if isinstance(error, UsageError) else _UNREADABLE
    except BrokenPipeError:
        # The reader has seen enough. Without this the interpreter complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception:  # noqa: BLE001 - Python's own exit code for a crash is 1, which here means "something found"
        _print_crash()
        return _CRASHED
    return code


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = build_parser().parse_args(argv)
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    return args.run(args)


def _print_crash() -> None:
    for line in traceback.format_exc().splitlines():
        print(escape(line), file=sys.stderr)
    say("this is a bug in forkpoint, not in your job; please report it with the lines above")
