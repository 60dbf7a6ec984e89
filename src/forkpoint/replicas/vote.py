"""Who is odd."""

from collections import Counter
from collections.abc import Hashable, Sequence


def majority(values: Sequence[Hashable]) -> Hashable | None:
    """The value that more than half of all have."""
    value, count = Counter(values).most_common(1)[0]
    return value if 2 * count > len(values) else None


def odd_ranks(ranks: Sequence[int], values: Sequence[Hashable]) -> tuple[int, ...]:
    """Who differs from the majority; both of two, since neither can be believed; nobody without a majority."""
    most = majority(values)
    if most is None:
        return tuple(ranks) if len(ranks) == 2 else ()
    return tuple(rank for rank, value in zip(ranks, values, strict=True) if value != most)
