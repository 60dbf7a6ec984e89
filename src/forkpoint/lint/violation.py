"""What a rule reports about a place in the source."""

from dataclasses import dataclass


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
    related: tuple[Related, ...] = ()
    advisory: bool = False
    edit: LineEdit | None = None
