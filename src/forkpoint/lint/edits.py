"""Edits of violations -> changed files: never overlapping, with line ends and encoding as they were."""

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

from forkpoint.lint.report import Report
from forkpoint.lint.violation import Edit
from forkpoint.source import Note, Program

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""As Python counts lines: form feeds and the separators of Unicode end none."""


@dataclass(frozen=True, slots=True)
class Change:
    """One file before and after, as bytes on disk."""

    file: str
    before: bytes
    after: bytes
    edits: int


@dataclass(frozen=True, slots=True)
class Changes:
    changes: tuple[Change, ...]
    notes: tuple[Note, ...]
    """Files that were left alone, and why."""
    left: int
    """Edits that overlap one that was made: another run finds them again, if they are still wanted."""


def plan_changes(report: Report, program: Program) -> Changes:
    """What the edits make of their files. Nothing is written."""
    changes: list[Change] = []
    notes: list[Note] = []
    left = 0
    for file, violations in groupby(report.violations, key=lambda violation: violation.file):
        edits = list(dict.fromkeys(violation.edit for violation in violations if violation.edit is not None))
        if not edits:
            continue
        chosen = _apart(edits)
        change = _change(file, chosen, program.text(file))
        if change is None:
            notes.append(Note(file, "changed since it was read: left alone"))
            continue
        changes.append(change)
        left += len(edits) - len(chosen)
    return Changes(tuple(changes), tuple(notes), left)


def write_change(change: Change) -> None:
    """All or nothing: readers see the old file or the new one. A link stays a link."""
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


def _apart(edits: Sequence[Edit]) -> list[Edit]:
    """The first of those that touch the same line. An insertion touches the line it stands before."""
    chosen: list[Edit] = []
    end = 0
    for edit in sorted(edits, key=lambda edit: (edit.line, edit.end_line)):
        if edit.line > end:
            chosen.append(edit)
            end = max(edit.line, edit.end_line)
    return chosen


def _change(file: str, edits: Sequence[Edit], text_read: str) -> Change | None:
    """None where the file no longer holds the text that was read."""
    try:
        before = Path(file).read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(before).readline)
        text = before.decode(encoding)
    except (OSError, SyntaxError, UnicodeError):
        return None
    lines = _LINE.findall(text)
    if "".join(_with_plain_end(lines)) != text_read:
        return None
    return Change(file, before, "".join(_edited(lines, edits)).encode(encoding), len(edits))


def _with_plain_end(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        body = line.rstrip("\r\n")
        yield body if body == line else f"{body}\n"


def _edited(lines: Sequence[str], edits: Sequence[Edit]) -> Iterator[str]:
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
