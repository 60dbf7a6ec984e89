"""What a command is, and the options and option types that several commands share."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from forkpoint.errors import UsageError

MIN_WIDTH = 40
LEVELS = ("debug", "info")
DEFAULT_FILE = "forkpoint-debug.log"
_UNLIMITED = 1 << 40


class Command(NamedTuple):
    name: str
    help: str
    """One line for the list of commands."""
    description: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    """Does the work and returns the exit code. Imports what it needs inside, so that `--help` stays fast."""


def whole_number(least: int, most: int = _UNLIMITED) -> Callable[[str], int]:
    """An option type: a number in this range."""
    wanted = f"must be a number from {least} to {most}" if most < _UNLIMITED else f"must be a number, at least {least}"

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
            raise ArgumentTypeError(wanted)
        return int(text)

    return read


count = whole_number(1)
rank_count = whole_number(1, 1_000_000)
"""The same limit as align.MAX_WORLD."""
port = whole_number(0, 65535)


def duration(unit: str, most: float) -> Callable[[str], float]:
    """An option type: a number above 0, up to `most`."""

    def read(text: str) -> float:
        try:
            given = float(text)
        except ValueError:
            given = 0.0
        if not 0 < given <= most:
            raise ArgumentTypeError(f"must be a number of {unit} above 0")
        return given

    return read


seconds = duration("seconds", 1e9)
minutes = duration("minutes", 24 * 60)


def existing_path(path: str) -> str:
    if not Path(path).exists():
        raise ArgumentTypeError(f"{path} does not exist")
    return path


def source_path(path: str) -> str:
    """A folder or file, or `pkg:NAME` for an installed package."""
    from forkpoint.source.installed import folder_of

    if not path.startswith("pkg:"):
        return existing_path(path)
    name = path.removeprefix("pkg:")
    folder = folder_of(name)
    if folder is None:
        raise ArgumentTypeError(
            f"{name or 'an empty name'} is not installed where forkpoint runs; give its folder instead"
        )
    return folder


def directory(path: str) -> str:
    if not Path(path).is_dir():
        raise ArgumentTypeError(f"{path} is not a directory")
    return path


def command_after_dashes(args: Namespace) -> list[str]:
    """The command that `forkpoint run` and `forkpoint rehearse` start."""
    command: list[str] = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError(f"give the command after --: {args.parser.prog} -- torchrun train.py")
    return command


def split_names(given: Sequence[str]) -> list[str]:
    """The names in a repeatable option that also accepts several, separated by commas."""
    return [name for names in given for part in names.split(",") if (name := part.strip())]


def did_you_mean(name: str, known: Collection[str]) -> str | None:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else None


def add_source_argument(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        type=source_path,
        metavar="DIR",
        help="source of the program that ran, to name the branch where ranks diverged (repeatable; read, not run);"
        " pkg:NAME for an installed package, such as pkg:accelerate",
    )


def add_links_argument(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--follow-links",
        action="store_true",
        help="also follow links that lead out of a folder (default: list them)",
    )


def add_found_source_argument(parser: ArgumentParser) -> None:
    """For commands that look for the source themselves."""
    add_source_argument(parser)
    parser.add_argument(
        "--no-source",
        action="store_true",
        help="do not look for the source; by default, source on this machine is used if its lines match the stacks",
    )


def add_width_argument(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--width",
        type=whole_number(MIN_WIDTH),
        metavar="N",
        help=f"columns of the report (at least {MIN_WIDTH}; default: the terminal's)",
    )


def add_quiet_argument(parser: ArgumentParser, help_text: str = "no progress and no remarks on standard error") -> None:
    parser.add_argument("--quiet", action="store_true", help=help_text)
