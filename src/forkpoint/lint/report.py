"""The result of one run."""

from dataclasses import dataclass

from forkpoint.lint.violation import Violation
from forkpoint.source import SourceNote


@dataclass(frozen=True, slots=True)
class LintReport:
    violations: tuple[Violation, ...]
    """By file, then line."""
    notes: tuple[SourceNote, ...]
    """Files that could not be read, and ignores without effect."""
    files: int
    """Number of files read."""
    lines: int
