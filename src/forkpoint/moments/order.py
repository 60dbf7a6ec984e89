"""The order of moments: by the second, and within a second by the lines of the files that tell of both."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby, pairwise

from forkpoint.moments.same import Same


def in_order(told: Iterable[Same], limit: int) -> list[Same]:
    """The first of one clock. Within a second what no file tells is left in a fixed order."""
    first = sorted(told, key=lambda same: same.first.order)[:limit]
    by_second = groupby(first, key=lambda same: same.first.second)
    return [same for _, together in by_second for same in _by_lines(list(together))]


def _by_lines(together: list[Same]) -> list[Same]:
    """Each after those that a file has above it; where two files disagree, as it stood."""
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
