"""Reports <-> JSON, schema `forkpoint.lint/1` (`lint.schema.json` beside this file); rules -> JSON."""

import inspect
import json
from collections.abc import Sequence
from typing import Any

from forkpoint.lint.catalogue import AnyRule
from forkpoint.lint.rule import LineEdit, LintReport, Related, Violation
from forkpoint.source import SourceNote

SCHEMA = "forkpoint.lint/1"
RULES_SCHEMA = "forkpoint.rules/1"

Row = dict[str, Any]


def render_json(report: LintReport) -> str:
    """One ASCII document without a final newline. Source is data: nothing in it can act on a terminal."""
    document = {
        "schema": SCHEMA,
        "violations": [_violation(violation) for violation in report.violations],
        "notes": [{"file": valid_text(note.file), "text": note.text} for note in report.notes],
        "files": report.files,
        "lines": report.lines,
    }
    return json.dumps(document, indent=2).replace("\x7f", "\\u007f")


def read_json(document: str) -> LintReport:
    """The inverse. Raises KeyError, TypeError or ValueError where the document is not one of ours."""
    row = json.loads(document)
    if row["schema"] != SCHEMA:
        raise ValueError(f"not a document of schema {SCHEMA}")
    return LintReport(
        violations=tuple(_read_violation(item) for item in row["violations"]),
        notes=tuple(SourceNote(**item) for item in row["notes"]),
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
    edit = None if row["edit"] is None else LineEdit(**row["edit"])
    values: Row = {**row, "related": related, "edit": edit}
    return Violation(**values)


def render_rules_json(rules: Sequence[AnyRule]) -> str:
    """Rules as one ASCII document, schema `forkpoint.rules/1`."""
    rows = [
        {
            "code": rule.code,
            "title": rule.title,
            "advisory": rule.advisory,
            "doc": inspect.cleandoc(rule.doc),
            "found_in": rule.found_in,
            "silent_in": rule.silent_in,
        }
        for rule in rules
    ]
    return json.dumps({"schema": RULES_SCHEMA, "rules": rows}, indent=2)
