"""Ways to evidence on other machines: all are argument lists for the site's own tools, and run `SCRIPT`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forkpoint.collect.call import CallFailed
from forkpoint.errors import UsageError

_PATH = re.compile(r"(?:/|~/)[^\0\r\n]{0,4000}")


@dataclass(frozen=True, slots=True)
class Target:
    """One machine, or one container."""

    label: str
    argv: tuple[str, ...]
    """Runs the script there, with its standard input and output."""
    log_argv: tuple[str, ...] | None = None
    """Prints the log that the cluster keeps of it."""


@dataclass(frozen=True, slots=True)
class Remote:
    place: str
    """As it was asked for."""
    path: str
    """To look at; empty for the usual places."""
    find_targets: Callable[[float], Sequence[Target] | CallFailed]
    """Given the seconds that are left."""


def checked_path(place: str, path: str) -> str:
    """Raises UsageError."""
    if path and not _PATH.fullmatch(path):
        raise UsageError(f"{place}: the path must begin with / or ~/")
    return path
