"""Whether the linter saw a bug, and whether it is content with the fix."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.lint_tool import Run, Violation
from bench.lint_trees import Bug

NEAR = 6
"""Lines between a finding and what the fix changes."""


@dataclass(frozen=True, slots=True)
class Score:
    hits: tuple[Violation, ...]
    """At the fault, in the buggy revision."""
    kept: tuple[Violation, ...]
    """Those of them that the fixed revision still has."""
    related: tuple[Violation, ...]
    """Elsewhere, but they point at the fault."""

    @property
    def is_hit(self) -> bool:
        return bool(self.hits)

    @property
    def is_gone(self) -> bool:
        return self.is_hit and not self.kept

    @property
    def is_partly_gone(self) -> bool:
        return len(self.kept) < len(self.hits)

    @property
    def is_hit_or_related(self) -> bool:
        return bool(self.hits or self.related)


@dataclass(frozen=True, slots=True)
class Outcome:
    bug: Bug
    buggy: Run
    fixed: Run

    @property
    def failure(self) -> str | None:
        return self.buggy.failure or self.fixed.failure

    @property
    def default(self) -> Score:
        return score(self.bug, self.buggy.default, self.fixed.default, fix_was_read=self.fixed.failure is None)

    @property
    def advisory(self) -> Score:
        return score(self.bug, self.buggy.violations, self.fixed.violations, fix_was_read=self.fixed.failure is None)


def score(bug: Bug, buggy: Sequence[Violation], fixed: Iterable[Violation], *, fix_was_read: bool = True) -> Score:
    hits = tuple(violation for violation in buggy if is_at_fault(bug, violation.file, violation.line))
    still = {_identity(violation) for violation in fixed if violation.file == bug.file}
    return Score(
        hits=hits,
        kept=tuple(hit for hit in hits if not fix_was_read or _identity(hit) in still),
        related=tuple(
            violation
            for violation in buggy
            if violation not in hits and any(is_at_fault(bug, at.file, at.line) for at in violation.related)
        ),
    )


def is_at_fault(bug: Bug, file: str, line: int) -> bool:
    return file == bug.file and any(first - NEAR <= line <= last + NEAR for first, last in bug.hunks)


def _identity(violation: Violation) -> tuple[str, str, str]:
    """What stays the same when lines move: the condition, and the message without its numbers."""
    said = f"{violation.condition}: {re.sub(r'[0-9]+', '0', violation.message)}"
    return violation.rule, violation.function, " ".join(said.split())
