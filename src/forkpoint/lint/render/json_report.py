"""Report <-> JSON, schema `forkpoint.lint/1` (`lint.schema.json` beside this file)."""

import json
from typing import Any

from forkpoint.lint.report import Report
from forkpoint.lint.violation import Edit, Related, Violation
from forkpoint.source import Note

SCHEMA = "forkpoint.lint/1"

Row = dict[str, Any]


def render_json(report: Report) -> str:
    """One ASCII document without a final newline. Source is data: nothing in it can act on a terminal."""
    document = {
        "schema": SCHEMA,
        "violations": [_violation(violation) for violation in report.violations],
        "notes": [{"file": valid_text(note.file), "text": note.text} for note in report.notes],
        "files": report.files,
        "lines": report.lines,
    }
    return json.dumps(document, indent=2).replace("\x7f", "\\u007f")


def read_json(document: str) -> Report:
    """The inverse. Raises KeyError, TypeError or ValueError where the document is not one of ours."""
    row = json.loads(document)
    if row["schema"] != SCHEMA:
        raise ValueError(f"not a document of schema {SCHEMA}")
    return Report(
        violations=tuple(_read_violation(item) for item in row["violations"]),
        notes=tuple(Note(**item) for item in row["notes"]),
        files=row["files"],
        lines=row["lines"],
    )


def valid_text(name: str) -> str:
    r"""A file name's undecodable bytes as text `\udcff`: strict parsers refuse them raw."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _violation(violation: Violation) -> Row:
    edit = violation.edit
    return {
        "rule": violation.rule,
        "file": valid_text(violation.file),
        "line": violation.line,
        "end_line": violation.end_line,
        "column": violation.column,
        "function": violation.function,
        "message": violation.message,
        "condition": violation.condition,
        "why": violation.why,
        "advisory": violation.advisory,
        "related": [{"file": valid_text(r.file), "line": r.line, "says": r.says} for r in violation.related],
        "edit": edit and {"title": edit.title, "line": edit.line, "end_line": edit.end_line, "text": edit.text},
    }


def _read_violation(row: Row) -> Violation:
    related = tuple(Related(**item) for item in row["related"])
    edit = None if row["edit"] is None else Edit(**row["edit"])
    values: Row = {**row, "related": related, "edit": edit}
    return Violation(**values)
