"""What a rank or machine reports about a moment, merged with the others that report the same, in order."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby, pairwise

from msgspec import Struct, field

from forkpoint.judge.facts.clocks import Instant
from forkpoint.model.verdict import NOT_DATED, Evidence, Source

# ---------------------------------------------------------------------------------------------------------------------
# A single report about a moment, before equal reports are merged.


class Sighting(Struct, frozen=True):
    instant: Instant | None
    """None if it has no time."""
    when: str | None
    """As the source prints it; None for dumps, whose times are numbers."""
    source: Source
    kind: str
    about: str
    """Two sightings of one kind on one clock are the same moment if this is equal."""
    host: str | None
    says: str
    evidence: Evidence
    """Its rank is the one that reports it."""
    line: int
    """Orders the sightings from one file."""
    bound: bool = False
    """It came no later than `instant`."""
    step: int = 0
    """What comes first if neither seconds nor a file tell."""

    @property
    def clock(self) -> str:
        return self.instant.clock if self.instant else NOT_DATED

    @property
    def second(self) -> int:
        return self.instant.second if self.instant else 0

    @property
    def order(self) -> tuple[int, int, str, int, str]:
        """Does not depend on the order in which files were read."""
        return self.second, self.step, self.evidence.file, self.line, self.about


# ---------------------------------------------------------------------------------------------------------------------
# Merging the sightings of one moment as they come in.


class Same(Struct):
    """The first sighting of each rank. From dumps, which report each rank once, only the first and last are kept: there
    may be 100,000.
    """

    ranks: set[int] = field(default_factory=set[int])
    _of_rank: dict[int | None, Sighting] = field(default_factory=dict[int | None, Sighting])
    _ends: list[Sighting] = field(default_factory=list[Sighting])

    def add(self, one: Sighting) -> None:
        rank = one.evidence.rank
        if rank is not None:
            self.ranks.add(rank)
        if one.source is Source.RECORDER:
            self._ends = [min([*self._ends[:1], one], key=_order), max([*self._ends[1:], one], key=_order)]
            return
        known = self._of_rank.get(rank)
        if known is None or one.order < known.order:
            self._of_rank[rank] = one

    @property
    def sightings(self) -> list[Sighting]:
        """First to last."""
        return self._ends or sorted(self._of_rank.values(), key=_order)

    @property
    def first(self) -> Sighting:
        return self._ends[0] if self._ends else min(self._of_rank.values(), key=_order)

    @property
    def last(self) -> Sighting:
        return self._ends[1] if self._ends else max(self._of_rank.values(), key=_order)


def _order(one: Sighting) -> tuple[int, int, str, int, str]:
    return one.order


# ---------------------------------------------------------------------------------------------------------------------
# The order of moments: by the second, and within a second by the lines of the files that report both.


def in_order(told: Iterable[Same], limit: int) -> list[Same]:
    """Moments of one clock. Within a second, those that share no file are in a fixed order."""
    first = sorted(told, key=lambda same: same.first.order)[:limit]
    by_second = groupby(first, key=lambda same: same.first.second)
    return [same for _, together in by_second for same in _by_lines(list(together))]


def _by_lines(together: list[Same]) -> list[Same]:
    """Each after those that a file lists before it; if two files disagree, in the given order."""
    if len(together) < 2:
        return together
    above = _above(together)
    left, ordered = list(range(len(together))), list[Same]()
    while left:
        free = next((n for n in left if not above[n] & set(left)), left[0])
        left.remove(free)
        ordered.append(together[free])
    return ordered


def _above(together: list[Same]) -> dict[int, set[int]]:
    lines: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for number, same in enumerate(together):
        for one in same.sightings:
            if one.line:
                lines[one.evidence.file, one.second].append((one.line, number))
    above: dict[int, set[int]] = defaultdict(set)
    for told in lines.values():
        for (_, first), (_, second) in pairwise(sorted(told)):
            if first != second:
                above[second].add(first)
    return above
