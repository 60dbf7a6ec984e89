"""A call that did not end well, as the controller saw it."""

from dataclasses import dataclass

from forkpoint.controller.answers import Death, Raised, Testimony
from forkpoint.controller.compare import Split
from forkpoint.detectors.blame import is_victim_text
from forkpoint.model.ranks import name_ranks


@dataclass(frozen=True, slots=True)
class CallFailure:
    call: int
    method: str
    size: int
    raised: tuple[Raised, ...] = ()
    """In the order in which it was told."""
    dead: tuple[Death, ...] = ()
    silent: tuple[int, ...] = ()
    """Ranks that had not answered when the controller stopped waiting."""
    limit_s: float | None = None
    """The time limit, where that ended the call."""
    still: bool = False
    """No rank issued anything in the second half of that time."""
    splits: tuple[Split, ...] = ()
    """Where ranks that returned have not issued the same."""
    counted: bool = False
    """They differ in number, and not only in what they are."""
    testimony: tuple[Testimony, ...] = ()

    @property
    def name(self) -> str:
        return f"call {self.call} ({self.method})"

    def facts(self) -> list[tuple[int | None, str]]:
        """One line each: whom it speaks of, and what it says."""
        facts: list[tuple[int | None, str]] = [
            (d.rank, f"rank {d.rank} was lost: {d.how or 'its process ended'}") for d in self.dead
        ]
        facts += [(None, f"{name_ranks(ranks)} raised {error}") for error, ranks in self._errors().items()]
        if self.silent:
            facts.append((None, f"{name_ranks(self.silent)} had not returned"))
        facts += [(None, str(split)) for split in self.splits]
        if self.limit_s is not None:
            moved = (
                "no rank issued anything in its second half" if self.still else "ranks were still issuing operations"
            )
            facts.append((None, f"the call did not return within {self.limit_s:g} s, and {moved}"))
        return facts

    @property
    def lost(self) -> Death | None:
        """The process whose end explains the rest: the first, where all that others raised is the loss of a peer."""
        moment = min((death.moment for death in self.dead), default=0)
        firsts = [death for death in self.dead if death.moment == moment]
        alone = len(firsts) == 1 and all(is_victim_text(raised.error) for raised in self.raised)
        return firsts[0] if alone else None

    def _errors(self) -> dict[str, list[int]]:
        """The ranks that raised each, in the order in which it was told."""
        ranks: dict[str, list[int]] = {}
        for raised in self.raised:
            ranks.setdefault(raised.error, []).append(raised.rank)
        return ranks
