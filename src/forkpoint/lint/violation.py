"""What a rule says of a place in source."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that belongs to it: the collective, the definition, where the value comes from."""

    file: str
    line: int
    says: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines of the violation's own file, replaced. Offered only where the change cannot alter a correct program."""

    title: str
    line: int
    end_line: int
    """Inclusive. `line - 1`: nothing is replaced, the text is put before `line`."""
    text: str


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    file: str
    line: int
    """Of the branch, loop or call that lets ranks part."""
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
    edit: Edit | None = None
