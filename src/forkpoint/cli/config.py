"""Defaults from files: `[tool.forkpoint]` in pyproject.toml, and `~/.config/forkpoint.toml`.

    source = ["src"]                  # for every command that has --source

    [watch]                           # for one command
    notify = ["slack"]

A key is the long name of an option. The command line wins over the project's file, and that over the user's. Options that send
or run something are accepted only in the user's own file, because anyone may have written a checkout.
"""

import os
from argparse import Action, ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from forkpoint.cli.options import did_you_mean, directory, existing_path, source_path
from forkpoint.errors import UsageError

_OF_A_PROJECT = frozenset({"source", "width", "quiet", "color", "embed-source", "select", "ignore"})
"""Harmless options: they change only what is read and how it is shown."""
_PATHS = (existing_path, directory, source_path)
_TABLE = "[tool.forkpoint"


class FileSetting(NamedTuple):  # no dataclass: help is printed without that module and what it loads
    file: Path
    command: str | None
    """None: for every command that has this option."""
    name: str
    value: object


def read_settings(environ: Mapping[str, str] = os.environ, folder: Path | None = None) -> tuple[FileSetting, ...]:
    """The user's first: later ones win. Raises UsageError if a file cannot be read."""
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".config")
    user, project = Path(base) / "forkpoint.toml", _find_project(folder or Path.cwd())
    return (*_of_user(user), *(_of_project(project) if project else ()))


def _of_user(file: Path) -> Iterator[FileSetting]:
    """None if $HOME is another user's, as after `sudo -u` and in containers with any user id."""
    try:
        given = file.is_file()
    except OSError:
        return
    if given:
        yield from _settings(file, _read(file))


def _of_project(file: Path) -> Iterator[FileSetting]:
    tools = _read(file).get("tool", {})
    table = tools.get("forkpoint", {}) if isinstance(tools, dict) else {}
    if isinstance(table, dict):
        table = {name: value for name, value in table.items() if name != "lint"}  # lint reads its own table
    for setting in _settings(file, table):
        if setting.name not in _OF_A_PROJECT:
            raise UsageError(
                f"{file}: {setting.name} is allowed only in ~/.config/forkpoint.toml: a project's file must not decide "
                "where something is sent or what is run"
            )
        yield setting


def _find_project(folder: Path) -> Path | None:
    """The nearest pyproject.toml that has the table."""
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        try:
            if file.is_file() and _TABLE in file.read_text(encoding="utf-8"):
                return file
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _read(file: Path) -> dict[str, object]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise UsageError(f"{file}: cannot be read as TOML ({error})") from error


def _settings(file: Path, table: object) -> Iterator[FileSetting]:
    for key, value in table.items() if isinstance(table, dict) else ():
        if isinstance(value, dict):
            yield from (FileSetting(file, key, name, one) for name, one in value.items())
        else:
            yield FileSetting(file, None, key, value)


def apply_settings(settings: tuple[FileSetting, ...], parsers: Mapping[str, ArgumentParser]) -> None:
    """Raises UsageError for an unknown command or option, and for a value that the option does not accept."""
    for setting in settings:
        if setting.command is not None and setting.command not in parsers:
            near = did_you_mean(setting.command, parsers)
            raise UsageError(f"{setting.file}: [{setting.command}] is not a command; {near or 'see forkpoint --help'}")
        asked = [parsers[setting.command]] if setting.command else list(parsers.values())
        options = [(parser, action) for parser in asked if (action := _find(parser, setting.name))]
        if not options:
            known = {name for parser in asked for name in _names(parser)}
            near = did_you_mean(setting.name, known)
            raise UsageError(f"{setting.file}: {setting.name} is not an option; {near or 'see docs/cli.md'}")
        for parser, action in options:
            parser.set_defaults(**{action.dest: _value(setting, action)})


def _names(parser: ArgumentParser) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001 - argparse lists them nowhere else
        yield from (option[2:] for option in action.option_strings if option.startswith("--"))


def _find(parser: ArgumentParser, name: str) -> Action | None:
    actions = parser._actions  # noqa: SLF001 - as above
    return next((action for action in actions if f"--{name}" in action.option_strings), None)


def _value(setting: FileSetting, action: Action) -> object:
    """The value, converted as on the command line."""
    if action.nargs == 0:
        if not isinstance(setting.value, bool):
            raise UsageError(f"{setting.file}: {setting.name} must be true or false")
        return setting.value == bool(action.const)
    several = isinstance(action.default, list)
    given = setting.value if isinstance(setting.value, list) else [setting.value]
    if isinstance(setting.value, list) and not several:
        raise UsageError(f"{setting.file}: {setting.name} takes one value")
    values = [_convert(setting, action, value) for value in given]
    return values if several else values[0]


def _convert(setting: FileSetting, action: Action, value: object) -> object:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise UsageError(f"{setting.file}: {setting.name} must be a text or a number")
    text = str(value)
    if action.choices is not None and text not in action.choices:
        raise UsageError(f"{setting.file}: {setting.name} must be one of {', '.join(map(str, action.choices))}")
    if action.type in _PATHS and not text.startswith("pkg:"):
        text = str(setting.file.parent / Path(text).expanduser())
    try:
        return action.type(text) if callable(action.type) else text
    except (ArgumentTypeError, ValueError) as error:
        raise UsageError(f"{setting.file}: {setting.name}: {error}") from error
