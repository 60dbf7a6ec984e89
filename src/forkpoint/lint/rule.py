"""A rule, a violation of it, and the report of one run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forkpoint.source import SourceNote
from forkpoint.source.analysis import Analysis

# ---------------------------------------------------------------------------------------------------------------------
# What a rule reports about a place in the source.


@dataclass(frozen=True, slots=True)
class Related:
    """Another place to look at: the collective, the branch, where the value comes from."""

    file: str
    line: int
    says: str


@dataclass(frozen=True, slots=True)
class LineEdit:
    """A replacement of lines in the violation's file. Offered only if it cannot change a correct program."""

    title: str
    line: int
    end_line: int
    """Inclusive. `line - 1` inserts the text before `line`."""
    text: str


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    file: str
    line: int
    """Of the branch, loop or call where ranks can diverge."""
    end_line: int
    column: int
    """From 1."""
    function: str
    """`Trainer.fit`; `<module>` at the top."""
    message: str
    """One sentence."""
    condition: str | None = None
    """The source text that decides."""
    why: str | None = None
    """Why it can differ by rank."""
    advisory: bool = False
    related: tuple[Related, ...] = ()
    edit: LineEdit | None = None


# ---------------------------------------------------------------------------------------------------------------------
# A rule: one way in which ranks can diverge.


@dataclass(frozen=True, slots=True)
class LintRule:
    code: str
    """`collective-under-branch`, as in `--select`, `ignore[...]` and `explain`."""
    title: str
    find: Callable[[Analysis], Iterator[Violation]]
    advisory: bool
    """Off by default: worth a look, but most of what it finds needs no change."""
    doc: str
    """The module's docstring: what it finds, what happens, what to do, what it does not report."""
    found_in: str
    """Source in which it finds something."""
    silent_in: str
    """Nearly the same source, in which it must find nothing."""


# ---------------------------------------------------------------------------------------------------------------------
# The result of one run.


@dataclass(frozen=True, slots=True)
class LintReport:
    violations: tuple[Violation, ...]
    """By file, then line."""
    notes: tuple[SourceNote, ...]
    """Files that could not be read, and ignores without effect."""
    files: int
    """Number of files read."""
    lines: int
