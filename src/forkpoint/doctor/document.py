"""Reading what `forkpoint doctor --json` wrote, on this node or another. Like any file, it may hold anything."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from forkpoint.errors import UnreadableInput

_SCHEMA = "forkpoint.doctor/1"
_LIMIT = 8 << 20
"""A report of hundreds of checks is a fraction of this."""
_NEXT = "write it with `forkpoint doctor --json`"


@dataclass(frozen=True, slots=True)
class Told:
    """What one check said."""

    status: str
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Document:
    file: str
    host: str
    time: float
    results: Mapping[str, Told]


def read_document(path: str) -> Document:
    """Raises UnreadableInput for all that is no report of a real machine."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LIMIT + 1)
    except OSError as error:
        raise UnreadableInput(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > _LIMIT:
        raise UnreadableInput(f"{path}: too long for a doctor's report; {_NEXT}")
    try:
        document = _document(path, json.loads(data))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableInput(f"{path}: is no doctor's report ({_SCHEMA}); {_NEXT}") from error
    return document


def _document(path: str, told: dict[str, Any]) -> Document:
    if told["schema"] != _SCHEMA:
        raise ValueError(told["schema"])
    if told["injected"] is not None:
        raise UnreadableInput(f"{path}: the report of a machine broken on purpose (--inject); give real ones")
    rows = cast("list[dict[str, Any]]", told["results"])
    results = {str(row["check"]): Told(str(row["status"]), _texts(row["details"])) for row in rows}
    return Document(path, str(told["host"]), float(told["time"]), results)


def _texts(details: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in details.items()}
