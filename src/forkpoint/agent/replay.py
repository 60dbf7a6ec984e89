"""A recorded conversation, played again without a model.

The engine does all its part anew, on the case, and each thing it would say to the model must be what was said then; the
model's replies come from the record. So the result is the same, or the first difference is named.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from forkpoint import __version__
from forkpoint.agent.budget import Budget
from forkpoint.agent.model import Message, ModelFailed, Offer, Reply
from forkpoint.agent.transcript import SCHEMA, Record
from forkpoint.errors import InputError, UsageError

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
