"""Those that tell one moment, put together as they come."""

from dataclasses import dataclass, field

from forkpoint.model.verdict import Source
from forkpoint.moments.sighting import Sighting


@dataclass(slots=True)
class Same:
    """The first sighting of each rank. Of what dumps tell, each rank once, only the ends are kept: there may be 100,000."""

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
