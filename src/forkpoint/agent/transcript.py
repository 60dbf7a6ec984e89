"""The transcript of a conversation with a model, as hash-chained JSON lines; and its replay without a model."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from forkpoint import __version__
from forkpoint.agent.model import Budget, Message, ModelFailed, Offer, Reply
from forkpoint.errors import InputError, UnreadableInput, UsageError
from forkpoint.redact import Redactor

# ---------------------------------------------------------------------------------------------------------------------
# The transcript: one JSON record per line, each with a hash over itself and all records before it.
#
# Its contents were redacted before the model saw them. Changing, removing or inserting a record breaks the chain; rewriting the
# whole chain is not detected, because it contains no secret. Records are written as they happen, so an interrupted run leaves
# what it had.

SCHEMA = "forkpoint.transcript/1"
MAX_BYTES = 64_000_000
"""A long run writes a few megabytes."""
_FIRST = "0" * 64
_KINDS = frozenset({"case", "start", "phase", "ask", "reply", "failed", "checked", "end"})
_LINE = re.compile(r'\{"hash": "([0-9a-f]{64})", "record": (\{.*\})\}')


@dataclass(frozen=True, slots=True)
class TranscriptRecord:
    kind: str
    body: dict[str, Any]
    """JSON."""


class Transcript(Protocol):
    def write(self, record: TranscriptRecord) -> None: ...


class TranscriptFile:
    """A context manager. A full disk does not stop the explanation: see `problem`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._last: str = _FIRST
        self.problem: str | None = None
        """Why the file is incomplete; the first reason."""
        try:
            self._file = Path(path).open("w", encoding="ascii", newline="\n")  # noqa: SIM115 closed by `close`
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}; choose another place") from error

    def write(self, record: TranscriptRecord) -> None:
        text = _as_text(record.kind, record.body)
        self._last = _follow(self._last, text)
        if self.problem is None:
            try:
                self._file.write(f'{{"hash": "{self._last}", "record": {text}}}\n')
                self._file.flush()
            except OSError as error:
                self.problem = f"{self._path}: cannot be written: {error.strerror}; the transcript is cut off"

    def close(self) -> None:
        with suppress(OSError):  # `write` has reported it
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def places(paths: Sequence[str], source: Sequence[str], redactor: Redactor) -> TranscriptRecord:
    """The paths of the case as given, so that it can be replayed from the same folder. Left out if they contain something that
    redaction hides.
    """
    # On a copy of the redactor: otherwise these paths would use up pseudonyms, and a replay from elsewhere would differ.
    redact = deepcopy(redactor).redact
    hidden = any(redact(one) != one for one in (*paths, *source))
    return TranscriptRecord("case", {} if hidden else {"paths": [*paths], "source": [*source]})


def read_transcript(path: str) -> tuple[TranscriptRecord, ...]:
    """Checks the whole chain. Raises InputError."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableInput(f"{path}: cannot be read ({error.strerror})") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: too large for a transcript; nothing of it was read")
    *lines, rest = data.decode("ascii", "backslashreplace").split("\n")
    if rest:
        raise InputError(f"{path}: line {len(lines) + 1} is not a complete transcript record")
    return tuple(_read(lines, path))


def _read(lines: Iterable[str], path: str) -> Iterator[TranscriptRecord]:
    last = _FIRST
    for number, line in enumerate(lines, start=1):
        found = _LINE.fullmatch(line)
        record = _record(found[2]) if found else None
        if found is None or record is None:
            raise InputError(f"{path}: line {number} is not a transcript record")
        last = _follow(last, found[2])
        if found[1] != last:
            raise InputError(f"{path}: line {number} does not follow the one before it: the file was changed")
        yield record


def _record(text: str) -> TranscriptRecord | None:
    """None: not a record as we write it."""
    try:
        match json.loads(text):
            case {"kind": str(kind), **body} if kind in _KINDS and _as_text(kind, body) == text:
                return TranscriptRecord(kind, body)
            case _:
                return None
    except (ValueError, RecursionError):
        return None


def _as_text(kind: str, body: dict[str, Any]) -> str:
    return json.dumps({"kind": kind, **body}, sort_keys=True, allow_nan=False)


def _follow(last: str, text: str) -> str:
    return sha256(f"{last}{text}".encode()).hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# Replay of a recorded conversation without a model.
#
# The engine does all its work again on the case, and everything it would say to the model must match the record; the model's
# replies come from the record. So the result is the same, or the first difference is reported.

_T = TypeVar("_T")
_MAX_VERSION = 20


@dataclass(frozen=True, slots=True)
class _Places:
    paths: list[str]
    source: list[str]


@dataclass(frozen=True, slots=True)
class _Start:
    forkpoint: str
    model: str
    budget: Budget


@dataclass(frozen=True, slots=True)
class _Replied:
    reply: Reply
    seconds: float


@dataclass(frozen=True, slots=True)
class _Failed:
    why: str
    seconds: float


class Replayed:
    """Both the model and the transcript of a replay: everything written must match the record."""

    def __init__(self, records: Sequence[TranscriptRecord], path: str) -> None:
        self._path = path
        if [r.kind for r in records[:2]] != ["case", "start"] or records[1].body.get("schema") != SCHEMA:
            raise InputError(f"{path}: not a transcript of forkpoint agent (schema {SCHEMA})")
        case, start = records[:2]
        self._places = self._typed(_Places, 1, case) if case.body else _Places([], [])
        self._start = self._typed(_Start, 2, start)
        self._records = enumerate(records[1:], start=2)
        self._seconds = 0.0

    def places(self) -> tuple[list[str], list[str]]:
        """Evidence and source paths, as given when it was recorded."""
        found = self._places
        gone = next((one for one in (*found.paths, *found.source) if not Path(one).exists()), None)
        if gone is not None or not found.paths:
            where = f"{gone} does not exist" if gone else "it does not contain the paths of the case"
            raise UsageError(f"{self._path}: {where}: give them, as in forkpoint agent PATH --source DIR --replay FILE")
        return found.paths, found.source

    @property
    def name(self) -> str:
        return self._start.model

    @property
    def budget(self) -> Budget:
        return self._start.budget

    def clock(self) -> float:
        return self._seconds

    def write(self, record: TranscriptRecord) -> None:
        if record.kind not in {"reply", "failed"}:
            number, recorded = self._next()
            if recorded != _as_json(record):
                raise self._differs(f"line {number} ({recorded.kind}) differs from what the engine says now")

    def ask(
        self,
        instructions: str,
        messages: Sequence[Message],
        offers: Sequence[Offer],
        within_s: float,
        hear: Callable[[str], None],
    ) -> Reply:
        """The request itself was already compared by `write`."""
        del instructions, messages, offers, within_s
        number, recorded = self._next()
        if recorded.kind == "failed":
            failed = self._typed(_Failed, number, recorded)
            self._seconds += failed.seconds
            raise ModelFailed(failed.why)
        if recorded.kind != "reply":
            raise self._differs(f"line {number} ({recorded.kind}) is not a reply, but the engine asks the model now")
        replied = self._typed(_Replied, number, recorded)
        self._seconds += replied.seconds
        hear(replied.reply.text)
        return replied.reply

    def finish(self) -> None:
        """Raises InputError if the record has more."""
        rest = next(self._records, None)
        if rest is not None:
            raise self._differs(f"line {rest[0]} ({rest[1].kind}) is left over after the engine has finished")

    def _next(self) -> tuple[int, TranscriptRecord]:
        found = next(self._records, None)
        if found is None:
            raise InputError(f"{self._path}: ends before the engine does; it is truncated")
        return found

    def _differs(self, what: str) -> InputError:
        written = self._start.forkpoint
        by = (
            ""
            if written == __version__
            else f", or the version: {written[:_MAX_VERSION]} wrote it, this is {__version__}"
        )
        return InputError(f"{self._path}: {what}: the evidence or the source is different{by}")

    def _typed(self, kind: type[_T], number: int, record: TranscriptRecord) -> _T:
        try:
            return TypeAdapter(kind).validate_python(record.body)
        except ValidationError as error:
            raise InputError(
                f"{self._path}: line {number} ({record.kind}) is not a valid record of forkpoint agent"
            ) from error


def _as_json(record: TranscriptRecord) -> TranscriptRecord:
    """The record after a round trip through JSON."""
    return TranscriptRecord(record.kind, json.loads(json.dumps(record.body)))
