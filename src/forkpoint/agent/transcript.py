"""What was said between the engine and a model, as hash-chained JSON lines; and the same conversation played again without a model."""

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
# What was said between the engine and a model: one JSON record per line, each with a hash over itself and all before
# it.
#
# What stands in it went through redaction before the model saw it. A record that was changed, left out or put in
# afterwards breaks the chain. Whoever makes the whole chain anew is not found out: nothing in it is secret. Written as
# it happens: a run that is cut off leaves what it had.

SCHEMA = "forkpoint.transcript/1"
MAX_BYTES = 64_000_000
"""A long run writes a few million."""
_FIRST = "0" * 64
_KINDS = frozenset({"case", "start", "phase", "ask", "reply", "failed", "checked", "end"})
_LINE = re.compile(r'\{"hash": "([0-9a-f]{64})", "record": (\{.*\})\}')


@dataclass(frozen=True, slots=True)
class Record:
    kind: str
    body: dict[str, Any]
    """JSON."""


class Transcript(Protocol):
    def write(self, record: Record) -> None: ...


class Unwritten:
    """Where no transcript was asked for."""

    def write(self, record: Record) -> None:
        pass


class TranscriptFile:
    """For a `with` statement. A disk that is full takes nothing of the explanation away: see `problem`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._last = _FIRST
        self.problem: str | None = None
        """Why the file lacks something; the first reason."""
        try:
            self._file = Path(path).open("w", encoding="ascii", newline="\n")  # noqa: SIM115 closed by `close`
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}; choose another place") from error

    def write(self, record: Record) -> None:
        text = _as_text(record.kind, record.body)
        self._last = _follow(self._last, text)
        if self.problem is None:
            try:
                self._file.write(f'{{"hash": "{self._last}", "record": {text}}}\n')
                self._file.flush()
            except OSError as error:
                self.problem = f"{self._path}: cannot be written: {error.strerror}; the transcript is cut off"

    def close(self) -> None:
        with suppress(OSError):  # said when it was written
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def places(paths: Sequence[str], source: Sequence[str], redactor: Redactor) -> Record:
    """Where the case lies, as it was said, so that it can be played again from the same folder. Left out where that would
    tell what redaction hides.
    """
    # A copy: it must not give out a name that then stands for somebody else when the case lies elsewhere.
    redact = deepcopy(redactor).redact
    hidden = any(redact(one) != one for one in (*paths, *source))
    return Record("case", {} if hidden else {"paths": [*paths], "source": [*source]})


def read_transcript(path: str) -> tuple[Record, ...]:
    """Checked from the first record to the last. Raises InputError."""
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


def _read(lines: Iterable[str], path: str) -> Iterator[Record]:
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


def _record(text: str) -> Record | None:
    """None: it is not as it was written."""
    try:
        match json.loads(text):
            case {"kind": str(kind), **body} if kind in _KINDS and _as_text(kind, body) == text:
                return Record(kind, body)
            case _:
                return None
    except (ValueError, RecursionError):
        return None


def _as_text(kind: str, body: dict[str, Any]) -> str:
    return json.dumps({"kind": kind, **body}, sort_keys=True, allow_nan=False)


def _follow(last: str, text: str) -> str:
    return sha256(f"{last}{text}".encode()).hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# A recorded conversation, played again without a model.
#
# The engine does all its part anew, on the case, and each thing it would say to the model must be what was said then;
# the model's replies come from the record. So the result is the same, or the first difference is named.

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
    """Both the model and the transcript of a replay: what is written must be what is on record."""

    def __init__(self, records: Sequence[Record], path: str) -> None:
        self._path = path
        if [r.kind for r in records[:2]] != ["case", "start"] or records[1].body.get("schema") != SCHEMA:
            raise InputError(f"{path}: not a transcript of forkpoint agent (schema {SCHEMA})")
        case, start = records[:2]
        self._places = self._typed(_Places, 1, case) if case.body else _Places([], [])
        self._start = self._typed(_Start, 2, start)
        self._records = enumerate(records[1:], start=2)
        self._seconds = 0.0

    def places(self) -> tuple[list[str], list[str]]:
        """Evidence and source, as they were given when it was recorded."""
        found = self._places
        gone = next((one for one in (*found.paths, *found.source) if not Path(one).exists()), None)
        if gone is not None or not found.paths:
            where = f"{gone} is not there" if gone else "it does not say where the case lay"
            raise UsageError(f"{self._path}: {where}: name it, as in forkpoint agent PATH --source DIR --replay FILE")
        return found.paths, found.source

    @property
    def name(self) -> str:
        return self._start.model

    @property
    def budget(self) -> Budget:
        return self._start.budget

    def clock(self) -> float:
        return self._seconds

    def write(self, record: Record) -> None:
        if record.kind not in {"reply", "failed"}:
            number, recorded = self._next()
            if recorded != _as_json(record):
                raise self._differs(f"line {number} ({recorded.kind}) is not what the engine says now")

    def ask(
        self,
        instructions: str,
        messages: Sequence[Message],
        offers: Sequence[Offer],
        within_s: float,
        hear: Callable[[str], None],
    ) -> Reply:
        """What is asked was compared when it was written."""
        del instructions, messages, offers, within_s
        number, recorded = self._next()
        if recorded.kind == "failed":
            failed = self._typed(_Failed, number, recorded)
            self._seconds += failed.seconds
            raise ModelFailed(failed.why)
        if recorded.kind != "reply":
            raise self._differs(f"line {number} ({recorded.kind}) stands where the engine asks the model now")
        replied = self._typed(_Replied, number, recorded)
        self._seconds += replied.seconds
        hear(replied.reply.text)
        return replied.reply

    def finish(self) -> None:
        """Raises InputError where the record goes on."""
        rest = next(self._records, None)
        if rest is not None:
            raise self._differs(f"line {rest[0]} ({rest[1].kind}) comes after what the engine does now")

    def _next(self) -> tuple[int, Record]:
        found = next(self._records, None)
        if found is None:
            raise InputError(f"{self._path}: it ends before the engine does: it was cut off")
        return found

    def _differs(self, what: str) -> InputError:
        written = self._start.forkpoint
        by = (
            ""
            if written == __version__
            else f", or the version: {written[:_MAX_VERSION]} wrote it, this is {__version__}"
        )
        return InputError(f"{self._path}: {what}: the evidence or the source is another{by}")

    def _typed(self, kind: type[_T], number: int, record: Record) -> _T:
        try:
            return TypeAdapter(kind).validate_python(record.body)
        except ValidationError as error:
            raise InputError(
                f"{self._path}: line {number} ({record.kind}) is not as forkpoint agent writes it"
            ) from error


def _as_json(record: Record) -> Record:
    """As it reads when it was written and read again."""
    return Record(record.kind, json.loads(json.dumps(record.body)))
