"""Report -> lines for a terminal or a pipe. What colour they take is said by name; whoever prints decides."""

from collections.abc import Iterator, Sequence

from forkpoint.lint.report import Report
from forkpoint.lint.violation import Violation
from forkpoint.report.escape import escape
from forkpoint.source import Note

_INDENT = "    "
_MAX_NOTES = 20

Line = tuple[tuple[str, str], ...]
"""Pieces of text, each with the name of its style; "" for plain."""


def render_text(report: Report, width: int | None) -> list[Line]:
    """Violations by file, notes, and one line that counts. `width` cuts what explains, never what names the place."""
    lines: list[Line] = []
    file = None
    for violation in report.violations:
        if file not in {None, violation.file}:
            lines.append(())
        file = violation.file
        lines += _violation(violation, width)
    notes = list(_notes(report.notes))
    parts = [part for part in (lines, notes, [_summary(report)]) if part]
    return [line for number, part in enumerate(parts) for line in ([()] if number else []) + part]


def _violation(violation: Violation, width: int | None) -> Iterator[Line]:
    place = f"{escape(violation.file)}:{violation.line}:{violation.column}:"
    colour = "yellow" if violation.advisory else "bold red"
    yield ((place, "bold"), (" ", ""), (violation.rule, colour), (f" {escape(violation.message)}", ""))
    if violation.condition is not None:
        yield ((_cut(_INDENT + escape(violation.condition), width), "cyan"),)
    reason = "; ".join(_reasons(violation))
    if reason:
        yield ((_cut(_INDENT + escape(reason), width), "dim"),)


def _reasons(violation: Violation) -> Iterator[str]:
    if violation.why is not None:
        yield violation.why
    for related in violation.related[:1]:
        place = f"line {related.line}" if related.file == violation.file else f"{related.file}:{related.line}"
        yield f"{place}: {related.says}"


def _notes(notes: Sequence[Note]) -> Iterator[Line]:
    for note in notes[:_MAX_NOTES]:
        yield ((f"{escape(note.file)}: note: {escape(note.text)}", "dim"),)
    if len(notes) > _MAX_NOTES:
        yield ((f"and {len(notes) - _MAX_NOTES} more notes: --json", "dim"),)


def _summary(report: Report) -> Line:
    where = f"{_count(report.files, 'file')}, {_count(report.lines, 'line')}"
    found = report.violations
    if not found:
        return ((f"no violations in {where}", "bold green"),)
    advisory = sum(violation.advisory for violation in found)
    doubtful = f" ({advisory} advisory)" if advisory else ""
    touched = len({violation.file for violation in found})
    text = f"{_count(len(found), 'violation')}{doubtful} in {_count(touched, 'file')}; read {where}"
    fixable = sum(violation.edit is not None for violation in found)
    return ((text + (f"; --fix repairs {fixable}" if fixable else ""), "bold"),)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else f"{text[: width - 4]} ..."
