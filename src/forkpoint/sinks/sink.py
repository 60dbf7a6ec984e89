"""What a sink is, and how one is tried: a few times, within a limit for all of it, and with secrets kept out of what is said."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from forkpoint.sinks.notice import Notice

TRIES: Final = 4
_PAUSE_S: Final = 1.0
"""Doubled each time; what a server asks for (Retry-After) counts instead."""
_HIDDEN: Final = "***"
_MAX_WHY: Final = 300
_MIN_PIECE: Final = 8
"""Characters of a piece of a path that may be a key, where it is no word: `services` is none."""


class SinkRefused(Exception):
    """It will not be taken however often it is sent: a wrong key, a redirect, a certificate that is not trusted."""


class SinkUnreachable(Exception):
    """It may be taken later."""

    def __init__(self, why: str, wait_s: float | None = None) -> None:
        """`wait_s`: what the server asks for."""
        super().__init__(why)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class Variable:
    """A setting of a sink. All of them come from the environment: arguments and files are seen by others."""

    name: str
    says: str
    required: bool = False
    secret: bool = False
    """Never printed. Of an address, the part after the host."""


@dataclass(frozen=True, slots=True)
class Sink:
    name: str
    says: str
    """Who is told what, in a few words."""
    variables: tuple[Variable, ...]
    render: Callable[[Notice, Mapping[str, str]], str]
    """What would be sent, for `--notify-dry-run`."""
    send: Callable[[Notice, Mapping[str, str], float], None]
    """Once, within so many seconds. Raises SinkRefused or SinkUnreachable; a client of somebody else's may raise anything."""
    any_of: tuple[str, ...] = ()
    """Variables of which one must be set."""
    acts: bool = False
    """It wakes people or opens tickets: a verdict that is not decided is not sent unless that is asked for."""
    package: str | None = None
    """Imported to send; in the extra of the sink's name."""


@dataclass(frozen=True, slots=True)
class Outcome:
    sink: str
    problem: str | None = None
    skipped: str | None = None
    """Why there was nothing to send."""


def describe_outcome(outcome: Outcome) -> str:
    if outcome.skipped:
        return f"{outcome.sink}: not told, {outcome.skipped}"
    return f"{outcome.sink}: could not be told ({outcome.problem})" if outcome.problem else f"{outcome.sink}: told"


def describe_missing(sink: Sink, environ: Mapping[str, str]) -> str | None:
    """What the environment lacks. None: nothing that is known beforehand."""
    lacking = [v for v in sink.variables if v.required and not environ.get(v.name)]
    if lacking:
        return ", ".join(f"{variable.name} is not set ({variable.says})" for variable in lacking)
    if sink.any_of and not any(environ.get(name) for name in sink.any_of):
        return f"none of {', '.join(sink.any_of)} is set"
    return None


def deliver(sink: Sink, notice: Notice, environ: Mapping[str, str], limit_s: float) -> Outcome:
    """Never raises."""
    if missing := describe_missing(sink, environ):
        return Outcome(sink.name, missing)
    until = time.monotonic() + limit_s
    why, tries = "there was no time for it", 0
    while tries < TRIES and (left_s := until - time.monotonic()) > 0:
        tries += 1
        try:
            sink.send(notice, environ, left_s)
        except SinkRefused as error:
            return Outcome(sink.name, hide(sink, environ, str(error)))
        except SinkUnreachable as error:
            why = str(error) if error.wait_s is None else f"{error}, try again after {error.wait_s:g} s"
            wait_s = _PAUSE_S * 2 ** (tries - 1) if error.wait_s is None else error.wait_s
        except Exception as error:  # noqa: BLE001 - clients of services raise what they like, and the job must not care
            return Outcome(sink.name, hide(sink, environ, f"{type(error).__name__}: {error}"))
        else:
            return Outcome(sink.name)
        if time.monotonic() + wait_s >= until:
            break
        if tries < TRIES:
            time.sleep(wait_s)
    again = f", tried {tries} times" if tries > 1 else ""
    return Outcome(sink.name, hide(sink, environ, f"{why}{again}"))


def hide(sink: Sink, environ: Mapping[str, str], text: str, limit: int = _MAX_WHY) -> str:
    """The text without the sink's secrets."""
    for part in sorted(_secret_parts(sink, environ), key=len, reverse=True):
        text = text.replace(part, _HIDDEN)
    return text if len(text) <= limit else f"{text[:limit]} ..."


def _secret_parts(sink: Sink, environ: Mapping[str, str]) -> set[str]:
    """Also what clients quote of an address: its path, its query and the pieces of them."""
    parts: set[str] = set()
    for variable in sink.variables:
        value = environ.get(variable.name, "") if variable.secret else ""
        split = urlsplit(value) if value.startswith(("http://", "https://")) else None
        if split is None:
            parts |= {value, *(piece.partition("=")[2] for piece in value.split(","))}
            continue
        place = split.path + (f"?{split.query}" if split.query else "")
        pieces = {piece for piece in split.path.split("/") if len(piece) >= _MIN_PIECE and not piece.isalpha()}
        parts |= {place, split.path, split.query, *pieces}
    return {part for part in parts if len(part) > 3}
