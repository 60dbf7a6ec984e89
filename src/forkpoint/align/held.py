"""One group's traces over its members, taken out of the ranks' traces when they are asked for."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from forkpoint.model.trace import GroupTrace, RankTrace, ReadGroup


class HeldGroups(Mapping[int, GroupTrace]):
    """By rank; kept as two small numbers per member, since there are groups of 100,000."""

    def __init__(self, traces: Mapping[int, RankTrace], places: Mapping[int, int], unused: ReadGroup) -> None:
        """`places`: where each member with a dump holds it. -1: nowhere (`unused`)."""
        ranks = sorted(places)
        self._traces = traces
        self._ranks = array("q", ranks)
        self._places = array("l", (places[rank] for rank in ranks))
        self._unused = unused

    def __getitem__(self, rank: int) -> GroupTrace:
        at = bisect_left(self._ranks, rank)
        if at == len(self._ranks) or self._ranks[at] != rank:
            raise KeyError(rank)
        place = self._places[at]
        return self._unused if place < 0 else self._traces[rank].group_at(place)

    def __contains__(self, rank: object) -> bool:
        if not isinstance(rank, int):
            return False
        at = bisect_left(self._ranks, rank)
        return at < len(self._ranks) and self._ranks[at] == rank

    def __iter__(self) -> Iterator[int]:
        return iter(self._ranks)

    def __len__(self) -> int:
        return len(self._ranks)
