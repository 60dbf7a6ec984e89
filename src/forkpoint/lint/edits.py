"""Edits of violations -> changed files and unified diffs. Line ends and encoding are kept; overlapping edits are not applied."""

import io
import os
import re
import shutil
import tempfile
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from forkpoint.lint.rule import LineEdit, LintReport
from forkpoint.remedies.edit import unified
from forkpoint.source import Program, SourceNote

# ---------------------------------------------------------------------------------------------------------------------
# Edits of violations -> changed files. Line ends and encoding are kept; overlapping edits are not applied.

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""Lines as Python counts them: form feeds and Unicode separators do not end a line."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file before and after, as bytes on disk."""

    file: str
    before: bytes
    after: bytes
    edits: int


@dataclass(frozen=True, slots=True)
class FileChanges:
    changes: tuple[FileChange, ...]
    notes: tuple[SourceNote, ...]
    """Files that were not changed, and why."""
    left: int
    """Edits that overlap another one. A second run finds them again if they are still needed."""


def plan_changes(report: LintReport, program: Program) -> FileChanges:
    """Apply the edits in memory. Nothing is written."""
    changes: list[FileChange] = []
    notes: list[SourceNote] = []
    left = 0
    for file, violations in groupby(report.violations, key=lambda violation: violation.file):
        edits = list(dict.fromkeys(violation.edit for violation in violations if violation.edit is not None))
        if not edits:
            continue
        chosen = _apart(edits)
        change = _change(file, chosen, program.text(file))
        if change is None:
            notes.append(SourceNote(file, "changed since it was read: not edited"))
            continue
        changes.append(change)
        left += len(edits) - len(chosen)
    return FileChanges(tuple(changes), tuple(notes), left)


def write_change(change: FileChange) -> None:
    """Atomically: readers see the old file or the new one. A symbolic link stays a link."""
    target = Path(os.path.realpath(change.file))
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(change.after)
        shutil.copymode(target, name)
        Path(name).replace(target)
    except OSError:
        Path(name).unlink()
        raise


def _apart(edits: Sequence[LineEdit]) -> list[LineEdit]:
    """The first of those that touch the same line. An insertion touches the line after it."""
    chosen: list[LineEdit] = []
    end = 0
    for edit in sorted(edits, key=lambda edit: (edit.line, edit.end_line)):
        if edit.line > end:
            chosen.append(edit)
            end = max(edit.line, edit.end_line)
    return chosen


def _change(file: str, edits: Sequence[LineEdit], text_read: str) -> FileChange | None:
    """None if the file has changed since it was read."""
    try:
        before = Path(file).read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(before).readline)
        text = before.decode(encoding)
    except (OSError, SyntaxError, UnicodeError):
        return None
    lines = _LINE.findall(text)
    if "".join(_with_plain_end(lines)) != text_read:
        return None
    return FileChange(file, before, "".join(_edited(lines, edits)).encode(encoding), len(edits))


def _with_plain_end(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        body = line.rstrip("\r\n")
        yield body if body == line else f"{body}\n"


def _edited(lines: Sequence[str], edits: Sequence[LineEdit]) -> Iterator[str]:
    usual = _end_of(lines[0]) or "\n"
    done = 0
    for edit in edits:
        yield from lines[done : edit.line - 1]
        done = max(edit.end_line, edit.line - 1)
        end = _end_of(lines[min(edit.line, len(lines)) - 1]) or usual
        new = [f"{line}{end}" for line in edit.text.removesuffix("\n").split("\n")] if edit.text else []
        open_end = done == len(lines) and not _end_of(lines[-1])
        if open_end and edit.line > len(lines):
            yield end
        if open_end and new:
            new[-1] = new[-1].removesuffix(end)
        yield from new
    yield from lines[done:]


def _end_of(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


# ---------------------------------------------------------------------------------------------------------------------
# Changes -> a unified diff that `git apply` takes.


def render_diff(change: FileChange) -> bytes:
    """File names are relative to the current folder: apply the diff there."""
    return unified(os.path.relpath(change.file).replace(os.sep, "/"), change.before, change.after)
