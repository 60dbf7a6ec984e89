"""What can go wrong when ranks agree. All are RuntimeErrors: training code need not know this package to catch them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Side:
    """Ranks that gave the same answer."""

    ranks: tuple[int, ...]
    value: str
    """Bounded: the beginning of a long one."""


class ConsensusError(RuntimeError):
    """Ranks did not agree."""


class NoAgreement(ConsensusError):
    """Not all members came, or the collective broke. The group must not be used any more."""

    def __init__(self, message: str, absent: tuple[int, ...] | None = None) -> None:
        super().__init__(message)
        self.absent = absent
        """Global ranks that did not come. None: not known."""


class RanksDisagree(ConsensusError):
    """Raised on every member: a value that must be equal is not."""

    def __init__(self, message: str, sides: tuple[Side, ...] = (), odd: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.sides = sides
        """Who has which value, the largest side first."""
        self.odd = odd
        """Ranks that differ from more than half of the members. Empty where no value has such a majority."""


class PeerFailed(ConsensusError):
    """Raised where another rank failed, so that nobody goes on alone."""

    def __init__(self, message: str, failed: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.failed = failed


class NotAMember(RuntimeError):
    """This rank is not in the group it was given."""


class CollectiveInRankZero(RuntimeError):
    """A collective in code that one rank runs alone. It was refused before it was issued."""


def settle(error: BaseException, ranks: tuple[int, ...]) -> None:
    """Note that these ranks know of the error, or cannot be told: there is nothing left to settle with them.

    Kept on the exception itself, where it lives exactly as long as it matters.
    """
    vars(error)["_forkpoint_settled"] = frozenset(ranks)


def is_settled(error: BaseException, ranks: tuple[int, ...]) -> bool:
    """The error, or one that it was made from."""
    seen: BaseException | None = error
    while seen is not None:
        if frozenset(ranks) <= vars(seen).get("_forkpoint_settled", frozenset()):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
