"""What one run over source found."""

from dataclasses import dataclass

from forkpoint.lint.violation import Violation
from forkpoint.source import Note


@dataclass(frozen=True, slots=True)
class Report:
    violations: tuple[Violation, ...]
    """By file, then line."""
    notes: tuple[Note, ...]
    """Files that could not be read, and ignores that ignore nothing."""
    files: int
    """That were read."""
    lines: int
