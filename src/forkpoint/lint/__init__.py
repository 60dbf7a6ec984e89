"""Program -> violations of rules: places in the source where ranks can diverge."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from forkpoint.lint import rules
from forkpoint.lint.catalogue import IGNORE_RULES, IGNORE_WITHOUT_REASON, UNUSED_IGNORE, Options
from forkpoint.lint.ignores import Ignore, apply_ignores, read_ignores, unused, without_reason
from forkpoint.lint.rule import LintReport, Violation
from forkpoint.source import Program
from forkpoint.source.analysis import Analysis, analyse

__all__ = ["LintReport", "Options", "lint"]

Progress = Callable[[int, int, str], None]
"""Called with the number done, the total, and the name of the next."""


def lint(program: Program, options: Options, progress: Progress | None = None) -> LintReport:
    """What the selected rules find in the requested files."""
    if progress is not None:
        progress(0, 1, "which values can differ by rank")
    found = [_in_test(v, program) for v in _find(analyse(program), options, progress)]
    ignores, notes = read_ignores(program)
    kept, used = apply_ignores(found, ignores)
    kept += _about_ignores(ignores, used, options)
    return LintReport(
        violations=tuple(sorted(_wanted(kept, options), key=_place)),
        notes=(*program.notes, *notes),
        files=program.files,
        lines=program.lines,
    )


def _find(analysis: Analysis, options: Options, progress: Progress | None) -> Iterator[Violation]:
    """Each place once per rule and message."""
    seen: set[tuple[str, str, int, int, str]] = set()
    chosen = [rule for rule in rules.RULES if options.chooses(rule)]
    for number, rule in enumerate(chosen):
        if progress is not None:
            progress(number, len(chosen), rule.code)
        for violation in rule.find(analysis):
            key = (violation.rule, violation.file, violation.line, violation.column, violation.message)
            if key not in seen:
                seen.add(key)
                yield violation


def _in_test(violation: Violation, program: Program) -> Violation:
    """Tests let one rank do another thing on purpose, and end by themselves: advisory."""
    return replace(violation, advisory=True) if violation.file in program.tests else violation


def _about_ignores(ignores: list[Ignore], used: set[tuple[Ignore, str]], options: Options) -> list[Violation]:
    ran = {rule.code for rule in rules.RULES if options.chooses(rule)}
    # Violations about ignores cannot be ignored, so an ignore of those is never used.
    ran.update(rule.code for rule in IGNORE_RULES)
    said: list[Violation] = []
    if options.chooses(IGNORE_WITHOUT_REASON):
        said += without_reason(ignores)
    if options.chooses(UNUSED_IGNORE):
        said += unused(ignores, used, ran)
    return said


def _wanted(violations: Iterable[Violation], options: Options) -> Iterator[Violation]:
    for violation in violations:
        doubtful = violation.advisory and not options.shows_advisory(violation.rule)
        if not doubtful and options.covers(violation.file, violation.rule):
            yield violation


def _place(violation: Violation) -> tuple[str, int, int, str, str]:
    return (violation.file, violation.line, violation.column, violation.rule, violation.message)
