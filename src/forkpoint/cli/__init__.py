"""The command line: one file per command, which parses and prints. Errors are caught and shown here."""

import argparse
import atexit
import errno
import gc
import io
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from forkpoint import __version__
from forkpoint.cli.config import apply_settings, read_settings
from forkpoint.cli.options import DEFAULT_FILE, LEVELS, Command
from forkpoint.cli.output import say
from forkpoint.cli.start import check_json_file, explain_refusal, find_command, refuse_unknown, render_start
from forkpoint.errors import ForkpointError, UsageError
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    COMMANDS: tuple[Command, ...]

_MODULES = {
    name: name
    for name in (
        "attach", "diagnose", "brief", "demo", "run", "doctor", "env", "collect", "bundle", "summarise", "merge", "watch", "serve",
        "history", "lint", "rehearse", "explain", "lab", "agent", "mcp", "eval", "attribution", "completion",
    )
} | {"eval": "evaluate"}  # fmt: skip
"""Commands in the order of help, and their modules here. Only the one that is asked for is imported: each costs time."""


def load_commands(names: Iterable[str] = tuple(_MODULES)) -> tuple[Command, ...]:
    return tuple(import_module(f"{__name__}.{_MODULES[name]}").COMMAND for name in names)


def __getattr__(name: str) -> object:
    if name == "COMMANDS":
        return load_commands()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_log = logging.getLogger(__name__)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A disk, or whatever replaces one, is full."""
_USAGE, _UNREADABLE, _CRASHED = 2, 3, 70
_FEW_COLLECTIONS = 200_000
"""Number of objects created between two garbage collections. Imports and a small diagnosis create 40,000 objects and hardly any
garbage; one collection among them takes as long as reading eight dumps.
"""
_LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{explain_refusal(message, self)} (see {self.prog} --help)")


def build_parser() -> argparse.ArgumentParser:
    return build_parsers()[0]


def build_parsers(
    words: Sequence[str] | None = None,
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The main parser, and those of commands. `words`: the command line. If it starts with a command, only that command's parser
    is built, which saves time; None builds all.
    """
    parser = _Parser(
        prog="forkpoint",
        description="Find the earliest point where the ranks of a distributed training job stopped agreeing.",
        epilog="Results go to standard output, everything else to standard error. See also `forkpoint COMMAND --help`.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"forkpoint {__version__}")
    _add_common_arguments(parser, hidden=False)
    parsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    commands: dict[str, argparse.ArgumentParser] = {}
    chosen = tuple(words[:1]) if words and words[0] in _MODULES else tuple(_MODULES)
    for command in load_commands(chosen):
        sub = commands[command.name] = parsers.add_parser(
            command.name,
            help=command.help,
            description=command.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
        _add_common_arguments(sub, hidden=True)
        sub.set_defaults(run=command.run, parser=sub)
    return parser, commands


def _add_common_arguments(parser: argparse.ArgumentParser, *, hidden: bool) -> None:
    """Options allowed before and after the command, but shown in help only once."""
    for names, choices, help_text in (
        (("--color", "--colour"), ("auto", "always", "never"), "colours on standard output (default: auto)"),
        (("--log-level",), LEVELS, "write a log to a file, for bug reports"),
        (("--log-file",), None, f"that file (default: {DEFAULT_FILE})"),
    ):
        shown = argparse.SUPPRESS if hidden else help_text
        metavar = None if choices else "FILE"
        parser.add_argument(*names, choices=choices, metavar=metavar, default=argparse.SUPPRESS, help=shown)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Without `argv` the process ends with it."""
    code = _answer(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _end(code)
    return code


def _end(code: int) -> None:
    """Ends like the interpreter, but without freeing all objects: that takes 5 to 10 ms, and copies memory that is shared with
    the reading child. Returns if that would skip something: a thread that is still running, a stream that cannot be flushed.
    """
    if threading.active_count() > 1:
        gc.freeze()  # spares it Python's last garbage collection
        return
    with suppress(OSError, ValueError):
        atexit._run_exitfuncs()  # noqa: SLF001 - what the interpreter calls
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _answer(argv: Sequence[str]) -> int:
    gc.set_threshold(_FEW_COLLECTIONS)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Escape characters that the terminal cannot show, instead of raising.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(argv)
        sys.stdout.flush()
    except ForkpointError as error:
        _log.info("refused: %s", error)
        say(error.text)
        for line in error.lines:
            say(f"  {line}")
        return _USAGE if isinstance(error, UsageError) else _UNREADABLE
    except BrokenPipeError:
        # The reader closed the pipe. Without this the interpreter complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:  # noqa: BLE001 - Python's own exit code for a crash is 1, which here means "something found"
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            say(f"cannot write: {error.strerror}; make room, or write elsewhere")
            code = _USAGE
        else:
            _print_crash()
            code = _CRASHED
    return code


def _run(argv: Sequence[str]) -> int:
    given = list(argv)
    if "_ARGCOMPLETE" in os.environ:
        _complete(build_parser())
    if not given:
        print(render_start(load_commands()))
        return 0
    words = find_command(given, tuple(_MODULES))
    check_json_file(words)
    settings = read_settings()
    parser, commands = build_parsers(None if settings else words)  # settings of all commands are checked
    apply_settings(settings, commands)
    try:
        args, unknown = parser.parse_known_args(words)
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    if unknown:
        refuse_unknown(unknown, args.parser)
    _set_up(args, given)
    code = args.run(args)
    _log.info("exit code %d", code)
    return code


def _set_up(args: argparse.Namespace, argv: Sequence[str]) -> None:
    """Common to all commands: colours, by the usual environment variables, and the log."""
    color = getattr(args, "color", "auto")
    if color != "auto":
        os.environ.pop("NO_COLOR", None)
        os.environ.pop("FORCE_COLOR", None)
        os.environ["NO_COLOR" if color == "never" else "FORCE_COLOR"] = "1"
    if level := getattr(args, "log_level", None):
        _open_log(level, getattr(args, "log_file", DEFAULT_FILE), argv)


def _open_log(level: str, file: str, argv: Sequence[str]) -> None:
    """A log for bug reports: all `forkpoint` loggers write to the file. Of the evidence it contains only file names."""
    import platform

    try:
        handler = logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"--log-file {file}: cannot be written ({error.strerror})") from error
    handler.setFormatter(logging.Formatter(_LOG_FORMAT, "%Y-%m-%dT%H:%M:%S"))
    logger = logging.getLogger("forkpoint")
    logger.setLevel(level.upper())
    logger.addHandler(handler)
    logger.info("forkpoint %s, Python %s on %s", __version__, sys.version.split()[0], platform.platform())
    logger.info("arguments: %s", list(argv))


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answers the shell, which runs the code of `forkpoint completion`. Does not return."""
    import argcomplete

    argcomplete.autocomplete(parser)


def _print_crash() -> None:
    _log.exception("crashed")
    for line in traceback.format_exc().splitlines():
        print(escape(line), file=sys.stderr)
    say("this is a bug in forkpoint, not in your job; please report it with the traceback above")
