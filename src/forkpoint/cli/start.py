"""What `forkpoint` alone prints, and suggestions for commands and options that do not exist."""

from argparse import Action, ArgumentParser
from collections.abc import Sequence
from itertools import pairwise, takewhile
from pathlib import Path

from forkpoint.cli.options import Command, did_you_mean
from forkpoint.errors import UsageError

MOMENTS = (
    ("A job hangs now", ("attach", "watch")),
    ("A job failed", ("diagnose", "brief", "collect", "bundle", "explain", "serve", "history")),
    ("Before the run", ("lint", "rehearse", "doctor", "env", "run", "lab", "demo")),
    ("For tools and clusters", ("summarise", "merge", "agent", "mcp", "eval", "attribution", "completion")),
)
"""Commands by when they are needed. Any others are listed at the end."""

WITH_VALUE = ("--color", "--colour", "--log-level", "--log-file")
"""Options of every command that take a value."""

_MEANT = {
    "summarize": "summarise",
    "analyze": "diagnose",
    "analyse": "diagnose",
    "check": "doctor",
    "debug": "attach",
    "hang": "attach",
}
"""Other spellings, and words that people try first."""

_PAGE = "forkpoint diagnose DIR --html report.html writes a page, forkpoint serve DIR shows it in a browser"
_SETTINGS = "settings are in [tool.forkpoint] of pyproject.toml and in ~/.config/forkpoint.toml"
_NOTHING_TO_SET_UP = "nothing has to be set up; FORKPOINT=1 torchrun train.py lets the next run report by itself"
_RUNNING = "forkpoint attach finds the job of this machine, or lists them if there are several"
_NOT_COMMANDS = {
    **dict.fromkeys(("report", "show", "view", "open", "html", "ui"), _PAGE),
    **dict.fromkeys(("config", "configure", "settings"), _SETTINGS),
    **dict.fromkeys(("init", "install", "setup"), _NOTHING_TO_SET_UP),
    **dict.fromkeys(("ls", "list", "ps", "jobs", "status", "top"), _RUNNING),
}
"""Words that people try as commands, and what does that here."""

_OUTPUTS = "--json prints JSON, --html FILE and --md FILE write a page and Markdown"
_PIDS = "process ids are given without an option: forkpoint attach 4711 4712"
_PATHS = "paths are given without an option: forkpoint diagnose DIR"
_INSTEAD = {
    **dict.fromkeys(("--output", "-o", "--format"), _OUTPUTS),
    **dict.fromkeys(("--pid", "--pids", "-p"), _PIDS),
    **dict.fromkeys(("--dir", "-d", "--path", "--input", "-i", "--file", "-f", "--folder"), _PATHS),
    "--markdown": "did you mean --md?",
}
"""Options of other tools, and what to use here."""

_MISSING = {
    "diagnose": "give what the job left, in any mixture: forkpoint diagnose DIR; a job that hangs now: forkpoint attach",
    "bundle": "give what the job left: forkpoint bundle DIR",
}
"""What to say where a command needs paths and has none."""


def render_start(commands: Sequence[Command]) -> str:
    """The text of `forkpoint` without arguments."""
    by_name = {command.name: command for command in commands}
    width = max(map(len, by_name)) + 2
    lines = ["forkpoint finds the earliest point where the ranks of a distributed training job stopped agreeing.", ""]
    listed: set[str] = set()
    for moment, names in (*MOMENTS, ("More", tuple(by_name))):
        found = [by_name[name] for name in names if name in by_name and name not in listed]
        listed.update(command.name for command in found)
        if found:
            lines += [f"{moment}:", *(f"  {command.name:{width}}{command.help}" for command in found), ""]
    lines += [
        "Three to begin with:",
        "  forkpoint attach                    a job hangs now, on this machine",
        "  forkpoint diagnose DIR              dumps, logs, stacks that a job left: any mixture",
        "  FORKPOINT=1 torchrun train.py       the next run reports within seconds that ranks diverged",
        "",
        "forkpoint demo shows a recorded incident; forkpoint COMMAND --help explains a command.",
    ]
    return "\n".join(lines)


def find_command(argv: Sequence[str], known: Sequence[str]) -> list[str]:
    """The arguments with the command spelled correctly; `help` and `version` as the options they are elsewhere. Raises
    UsageError for an unknown command.
    """
    at = _place_of_command(argv)
    if at is None:
        return list(argv)
    name = argv[at]
    if name == "help":
        return [*find_command(argv[at + 1 :], known), "--help"]
    if name == "version":
        return ["--version"]
    meant = name if name in known else _MEANT.get(name, "")
    if meant not in known and Path(name).exists():
        raise UsageError(f"{name}: no such command, but a path; did you mean forkpoint diagnose {name}?")
    if meant not in known:
        near = _NOT_COMMANDS.get(name) or did_you_mean(name, [*known, *_MEANT])
        raise UsageError(f"{name}: no such command; {near or 'forkpoint alone lists them'}")
    return [*argv[:at], meant, *argv[at + 1 :]]


def _place_of_command(argv: Sequence[str]) -> int | None:
    """The first word that is neither an option nor the value of one."""
    value = False
    for place, word in enumerate(argv):
        if not value and not word.startswith("-"):
            return place
        value = not value and word in WITH_VALUE
    return None


def check_json_file(argv: Sequence[str]) -> None:
    """People try `--json FILE`. Raises UsageError for that, except with `run`, which accepts a file, and after `--`, where
    another program's arguments begin.
    """
    at = _place_of_command(argv)
    if at is not None and argv[at] == "run":
        return
    for word, after in pairwise(takewhile(lambda word: word != "--", argv)):
        if word == "--json" and after.endswith(".json") and not Path(after).exists():
            raise UsageError(f"--json prints to standard output; for a file use forkpoint ... --json > {after}")


def explain_refusal(message: str, parser: ArgumentParser) -> str:
    """What argparse refuses, with what to give instead."""
    command = parser.prog.rpartition(" ")[2]
    if "PATH" in message and "required" in message and command in _MISSING:
        return _MISSING[command]
    names, colon, _ = message.removeprefix("argument ").partition(": expected one argument")
    metavar = next((str(a.metavar) for a in _actions(parser) if colon and names.split("/")[0] in a.option_strings), "")
    return f"{names} needs a value: {names} {metavar}" if metavar else message


def _actions(parser: ArgumentParser) -> Sequence[Action]:
    return parser._actions  # noqa: SLF001 - argparse lists them nowhere else


def refuse_unknown(unknown: Sequence[str], parser: ArgumentParser) -> None:
    """Raises UsageError with a suggestion for the unknown option."""
    word = next((word for word in unknown if word.startswith("-")), unknown[0])
    known = [option for action in _actions(parser) for option in action.option_strings]
    name = word.partition("=")[0]
    near = (_INSTEAD.get(name) or did_you_mean(name, known)) if word.startswith("-") else None
    raise UsageError(f"unrecognized argument: {word}{f'; {near}' if near else ''} (see {parser.prog} --help)")
