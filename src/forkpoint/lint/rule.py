"""A rule: one way in which source lets ranks part."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forkpoint.lint.violation import Violation
from forkpoint.source.analysis import Analysis


@dataclass(frozen=True, slots=True)
class Rule:
    code: str
    """`collective-under-branch`: what `--select`, `ignore[...]` and `explain` take."""
    title: str
    find: Callable[[Analysis], Iterator[Violation]]
    advisory: bool
    """Off by default: worth a look, more often right than wrong to ignore."""
    doc: str
    """The module's docstring: what it finds, an example, what it leaves alone."""
    found_in: str
    """Source in which it finds something."""
    silent_in: str
    """Nearly the same source, in which it must not."""
