"""A rule: one way in which ranks can diverge."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forkpoint.lint.violation import Violation
from forkpoint.source.analysis import Analysis


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
