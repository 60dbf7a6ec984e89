"""What a sink is, and how it is tried: a few times, within one time limit, and with secrets removed from messages."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from forkpoint.sinks.notice import Notice

TRIES: Final = 4
_PAUSE_S: Final = 1.0
"""Doubled each time, unless the server sends Retry-After."""
_HIDDEN: Final = "***"
_MAX_WHY: Final = 300
_MIN_PIECE: Final = 8
"""A path component of this length or more may be a key, unless it is a word such as `services`."""


class SinkRefused(Exception):
    """Retrying does not help: a wrong key, a redirect, an untrusted certificate."""


class SinkUnreachable(Exception):
    """Retrying may help."""

    def __init__(self, why: str, wait_s: float | None = None) -> None:
        """`wait_s`: the server's Retry-After."""
        super().__init__(why)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class Variable:
    """A setting of a sink. All come from the environment: others can see arguments and files."""

    name: str
    says: str
    required: bool = False
    secret: bool = False
    """Never printed; of a URL, the part after the host."""


@dataclass(frozen=True, slots=True)
class Sink:
    name: str
    says: str
    """What is sent, in a few words."""
    variables: tuple[Variable, ...]
    render: Callable[[Notice, Mapping[str, str]], str]
    """What would be sent, for `--notify-dry-run`."""
    send: Callable[[Notice, Mapping[str, str], float], None]
    """Sends once, within a number of seconds. Raises SinkRefused or SinkUnreachable; third-party clients may raise anything."""
    any_of: tuple[str, ...] = ()
    """Variables of which one must be set."""
    acts: bool = False
    """It wakes people or opens tickets: an undecided verdict is sent only on request."""
    package: str | None = None
    """Imported to send; in the extra of the sink's name."""


@dataclass(frozen=True, slots=True)
class SinkOutcome:
    sink: str
    problem: str | None = None
    skipped: str | None = None
    """Why nothing was sent."""


def describe_outcome(outcome: SinkOutcome) -> str:
    if outcome.skipped:
        return f"{outcome.sink}: not notified, {outcome.skipped}"
    return (
        f"{outcome.sink}: could not be notified ({outcome.problem})" if outcome.problem else f"{outcome.sink}: notified"
    )


def describe_missing(sink: Sink, environ: Mapping[str, str]) -> str | None:
    """The settings that are missing. None: none that can be checked beforehand."""
    lacking = [v for v in sink.variables if v.required and not environ.get(v.name)]
    if lacking:
        return ", ".join(f"{variable.name} is not set ({variable.says})" for variable in lacking)
    if sink.any_of and not any(environ.get(name) for name in sink.any_of):
        return f"none of {', '.join(sink.any_of)} is set"
    return None


def deliver(sink: Sink, notice: Notice, environ: Mapping[str, str], limit_s: float) -> SinkOutcome:
    """Never raises."""
    if missing := describe_missing(sink, environ):
        return SinkOutcome(sink.name, missing)
    until = time.monotonic() + limit_s
    why, tries = "no time was left", 0
    while tries < TRIES and (left_s := until - time.monotonic()) > 0:
        tries += 1
        try:
            sink.send(notice, environ, left_s)
        except SinkRefused as error:
            return SinkOutcome(sink.name, hide(sink, environ, str(error)))
        except SinkUnreachable as error:
            why = str(error) if error.wait_s is None else f"{error}, try again after {error.wait_s:g} s"
            wait_s = _PAUSE_S * 2 ** (tries - 1) if error.wait_s is None else error.wait_s
        except Exception as error:  # noqa: BLE001 - third-party clients may raise anything, and the job must not fail
            return SinkOutcome(sink.name, hide(sink, environ, f"{type(error).__name__}: {error}"))
        else:
            return SinkOutcome(sink.name)
        if time.monotonic() + wait_s >= until:
            break
        if tries < TRIES:
            time.sleep(wait_s)
    again = f", tried {tries} times" if tries > 1 else ""
    return SinkOutcome(sink.name, hide(sink, environ, f"{why}{again}"))


def hide(sink: Sink, environ: Mapping[str, str], text: str, limit: int = _MAX_WHY) -> str:
    """The text without the sink's secrets."""
    for part in sorted(_secret_parts(sink, environ), key=len, reverse=True):
        text = text.replace(part, _HIDDEN)
    return text if len(text) <= limit else f"{text[:limit]} ..."


def _secret_parts(sink: Sink, environ: Mapping[str, str]) -> set[str]:
    """Also parts of a URL that clients quote: its path, its query and path components."""
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
