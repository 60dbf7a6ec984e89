"""A doctor's report as JSON: written by `forkpoint doctor --json`, read again from this node or another.

Schema `forkpoint.doctor/1` (`render/doctor.schema.json`). Like any file, what is read may hold anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from forkpoint.doctor.check import Check
from forkpoint.doctor.report import CheckFailure, DoctorReport, Judged
from forkpoint.errors import UnreadableInput
from forkpoint.report.json_text import json_text

SCHEMA = "forkpoint.doctor/1"
CHECKS_SCHEMA = "forkpoint.doctor-checks/1"
_LIMIT = 8 << 20
"""A report of hundreds of checks is a fraction of this."""
_NEXT = "write it with `forkpoint doctor --json`"


class _Row(msgspec.Struct, frozen=True):
    check: str
    title: str
    status: str
    says: str
    fix: str | None
    details: dict[str, str]


class _Written(msgspec.Struct, frozen=True, tag_field="schema", tag=SCHEMA):
    host: str
    time: float
    job: int | None
    injected: str | None
    exit_code: int
    results: tuple[_Row, ...]
    failures: tuple[CheckFailure, ...]


@dataclass(frozen=True, slots=True)
class PastResult:
    """What one check said when the report was written."""

    status: str
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Document:
    file: str
    host: str
    time: float
    results: Mapping[str, PastResult]


def render_json(report: DoctorReport) -> str:
    rows = tuple(_row(judged) for judged in report.results)
    return json_text(
        _Written(
            report.host, round(report.time, 3), report.job, report.injected, report.exit_code, rows, report.failures
        )
    )


def _row(judged: Judged) -> _Row:
    result = judged.result
    return _Row(judged.check, judged.title, result.status, result.says, result.fix, dict(result.details))


def render_checks_json(checks: Iterable[Check]) -> str:
    listed = [{"check": check.name, "title": check.title, "why": check.why} for check in checks]
    return json_text({"schema": CHECKS_SCHEMA, "checks": listed})


def read_document(path: str) -> Document:
    """Raises UnreadableInput for anything but the report of a real machine."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LIMIT + 1)
    except OSError as error:
        raise UnreadableInput(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > _LIMIT:
        raise UnreadableInput(f"{path}: too long for a doctor's report; {_NEXT}")
    try:
        written = msgspec.json.decode(data, type=_Written)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnreadableInput(f"{path}: is not a doctor's report ({SCHEMA}); {_NEXT}") from error
    if written.injected is not None:
        raise UnreadableInput(f"{path}: the report of a machine broken on purpose (--inject); give real ones")
    results = {row.check: PastResult(row.status, row.details) for row in written.results}
    return Document(path, written.host, written.time, results)
