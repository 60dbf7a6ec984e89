"""What was shown to a model: every line of it has an id, and only what was shown can be cited."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of evidence or source. Text is redacted and cannot act on a terminal."""

    where: str
    """`log_rank_0.txt line 31`, `train.py:48`, `rank 2 default_pg seq 9`: what a reader opens to check."""
    says: str


@dataclass(frozen=True, slots=True)
class Shown:
    id: str
    fact: Fact

    def __str__(self) -> str:
        return f"[{self.id}] {self.fact.where}: {self.fact.says}"


class Ledger:
    """Facts in the order in which they were first shown. The same fact keeps its id."""

    def __init__(self) -> None:
        self._ids: dict[Fact, str] = {}

    def show(self, facts: Iterable[Fact]) -> tuple[Shown, ...]:
        return tuple(Shown(self._ids.setdefault(fact, f"F{len(self._ids) + 1}"), fact) for fact in facts)

    @property
    def shown(self) -> tuple[Shown, ...]:
        return tuple(Shown(number, fact) for fact, number in self._ids.items())

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._ids.values())
