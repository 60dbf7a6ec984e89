"""Reports and rules -> plain text. Lines of a report carry the names of styles; the caller decides whether to use them."""

import inspect
import textwrap
from collections.abc import Iterator, Sequence

from forkpoint.lint.catalogue import AnyRule
from forkpoint.lint.rule import LintReport, Violation
from forkpoint.report.escape import escape
from forkpoint.source import SourceNote

_INDENT = "    "
_MAX_NOTES = 20

Line = tuple[tuple[str, str], ...]
"""Pieces of text, each with the name of its style; "" for plain."""


def render_text(report: LintReport, width: int | None) -> list[Line]:
    """Violations by file, notes, and a summary. `width` shortens explanations, never places."""
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


def _notes(notes: Sequence[SourceNote]) -> Iterator[Line]:
    for note in notes[:_MAX_NOTES]:
        yield ((f"{escape(note.file)}: note: {escape(note.text)}", "dim"),)
    if len(notes) > _MAX_NOTES:
        yield ((f"and {len(notes) - _MAX_NOTES} more notes: --json", "dim"),)


def _summary(report: LintReport) -> Line:
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


# rules


def render_rule_list(rules: Sequence[AnyRule]) -> str:
    """For `forkpoint lint --list`: one line per rule."""
    column = max(len(rule.code) for rule in rules)
    return "\n".join(f"{rule.code:<{column}}  {rule.title}{' (advisory)' if rule.advisory else ''}" for rule in rules)


def render_rule_text(rule: AnyRule) -> str:
    """For `forkpoint explain CODE`."""
    default = "off by default (advisory)" if rule.advisory else "on by default"
    return "\n\n".join(
        [
            f"{rule.code}: {rule.title}\n  a rule of `forkpoint lint`, {default}",
            inspect.cleandoc(rule.doc),
            f"Finds something\n{_indented(rule.found_in)}",
            f"Finds nothing\n{_indented(rule.silent_in)}",
        ]
    )


def _indented(source: str) -> str:
    return textwrap.indent(textwrap.dedent(source).strip(), "    ")
