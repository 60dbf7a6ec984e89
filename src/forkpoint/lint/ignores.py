"""`# forkpoint: ignore[code, code] reason`: which violations it suppresses, and which comments suppress none."""

import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from forkpoint.lint.catalogue import IGNORE_WITHOUT_REASON, UNUSED_IGNORE, IgnoreRule, unknown_code
from forkpoint.lint.rule import Violation
from forkpoint.source import Program, SourceNote

_MARK = "forkpoint:"
_COMMENT = re.compile(r"(?<!\S)#\s*forkpoint:\s*ignore\b(?:\[(?P<codes>[^\]]*)\])?(?P<rest>[^#]*)")
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Ignore:
    file: str
    line: int
    """Of the comment."""
    column: int
    code_line: int
    """The line it applies to: its own, or the next code line if the comment is alone on its line."""
    codes: tuple[str, ...]
    has_reason: bool

    def covers(self, violation: Violation) -> bool:
        if violation.file != self.file or violation.rule not in self.codes:
            return False
        # A comment after code may also be on the last line of the head.
        return self.code_line == violation.line or self.line == violation.end_line


def read_ignores(program: Program) -> tuple[list[Ignore], list[SourceNote]]:
    ignores: list[Ignore] = []
    notes: list[SourceNote] = []
    for file in sorted(program.modules):
        text = program.text(file)
        # Tokenizing is slow, and few files have an ignore.
        if _MARK not in text:
            continue
        for ignore in _ignores_of(file, text):
            ignores.append(ignore)
            notes += _notes_on(ignore)
    return ignores, notes


def apply_ignores(
    violations: Iterable[Violation], ignores: Sequence[Ignore]
) -> tuple[list[Violation], set[tuple[Ignore, str]]]:
    """The remaining violations, and which code of which ignore suppressed something."""
    kept: list[Violation] = []
    used: set[tuple[Ignore, str]] = set()
    by_file: dict[str, list[Ignore]] = {}
    for ignore in ignores:
        by_file.setdefault(ignore.file, []).append(ignore)
    for violation in violations:
        meant = [(ignore, violation.rule) for ignore in by_file.get(violation.file, ()) if ignore.covers(violation)]
        used.update(meant)
        if not meant:
            kept.append(violation)
    return kept, used


def without_reason(ignores: Sequence[Ignore]) -> Iterator[Violation]:
    for ignore in ignores:
        if ignore.codes and not ignore.has_reason:
            listed = ", ".join(ignore.codes)
            yield _violation(
                IGNORE_WITHOUT_REASON,
                ignore,
                f"say after ignore[{listed}] why ranks cannot diverge here",
                advisory=False,
            )


def unused(ignores: Sequence[Ignore], used: set[tuple[Ignore, str]], ran: set[str]) -> Iterator[Violation]:
    for ignore in ignores:
        for code in ignore.codes:
            if code in ran and (ignore, code) not in used:
                yield _violation(UNUSED_IGNORE, ignore, f"{code} finds nothing here; remove the ignore", advisory=True)


def _ignores_of(file: str, text: str) -> Iterator[Ignore]:
    lines = text.split("\n")
    for token in _tokens(text):
        match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if match is None:
            continue
        line, column = token.start
        alone = not lines[line - 1][:column].strip()
        yield Ignore(
            file=file,
            line=line,
            column=column + match.start() + 1,
            code_line=_below(lines, line) if alone else line,
            codes=tuple(code for part in (match["codes"] or "").split(",") if (code := part.strip())),
            has_reason=_WORD.search(match["rest"]) is not None,
        )


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """Of a file that was not parsed as a whole, those before the place that stops the tokenizer, too."""
    with suppress(tokenize.TokenError, SyntaxError):
        yield from tokenize.generate_tokens(io.StringIO(text).readline)


def _below(lines: Sequence[str], line: int) -> int:
    """The first line below that is not a comment."""
    while line < len(lines) and lines[line].lstrip().startswith("#"):
        line += 1
    return line + 1


def _notes_on(ignore: Ignore) -> Iterator[SourceNote]:
    if not ignore.codes:
        yield SourceNote(
            ignore.file, f"line {ignore.line}: ignore without a code has no effect; write ignore[code] reason"
        )
    for wrong in filter(None, map(unknown_code, ignore.codes)):
        yield SourceNote(ignore.file, f"line {ignore.line}: ignore has no effect: {wrong}")


def _violation(rule: IgnoreRule, ignore: Ignore, message: str, *, advisory: bool) -> Violation:
    return Violation(
        rule=rule.code,
        file=ignore.file,
        line=ignore.line,
        end_line=ignore.line,
        column=ignore.column,
        function="<module>",
        message=message,
        advisory=advisory,
    )
