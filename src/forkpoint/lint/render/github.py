"""Report -> workflow commands, which GitHub shows as annotations."""

import os
from collections.abc import Iterator
from pathlib import Path

from forkpoint.lint.rule import LintReport, Violation
from forkpoint.report.escape import escape

MAX_SHOWN = 10
"""GitHub shows this many annotations of a type per step; the rest is only in the log."""


def render_annotations(report: LintReport) -> Iterator[str]:
    """One command per violation: warnings, and notices for advisory ones."""
    advisory = sum(violation.advisory for violation in report.violations)
    warnings, notices = len(report.violations) - advisory, advisory + len(report.notes)
    if max(warnings, notices) > MAX_SHOWN:
        # The first notice is always shown, and takes the place of another.
        more = max(0, warnings - MAX_SHOWN) + max(0, notices + 1 - MAX_SHOWN)
        yield f"::notice title=forkpoint lint::{more} more annotations than GitHub shows here; the log of the step has all"
    yield from map(_annotation, report.violations)
    yield from (f"::notice file={_property(_relative(note.file))}::{_data(escape(note.text))}" for note in report.notes)


def _annotation(violation: Violation) -> str:
    properties = {
        "file": _relative(violation.file),
        "line": str(violation.line),
        "endLine": str(violation.end_line),
        "col": str(violation.column),
        "title": f"forkpoint {violation.rule}",
    }
    if violation.end_line != violation.line:
        # GitHub rejects a column if an annotation spans several lines.
        del properties["col"]
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    parts = [violation.message, violation.condition, violation.why]
    message = "%0A".join(_data(escape(part)) for part in parts if part)
    return f"::{'notice' if violation.advisory else 'warning'} {listed}::{message}"


def _relative(file: str) -> str:
    """Relative to the current folder, without `./`, which GitHub does not accept."""
    return Path(os.path.relpath(file)).as_posix()


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
