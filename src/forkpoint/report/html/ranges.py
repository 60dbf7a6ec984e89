"""Lists of ranks as ranges: `0-6,8,16-128/8`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_RANGES = 200
"""More would fill the page, and nobody reads them."""


@dataclass(frozen=True, slots=True)
class Ranges:
    count: int
    text: str
    """`a-b/s`: every s-th from a to b. Ends in `,...` where there are more than MAX_RANGES."""


def as_ranges(ranks: Iterable[int]) -> Ranges:
    ordered = sorted(set(ranks))
    found: list[str] = []
    for first, last, step in _steps(ordered):
        if len(found) == MAX_RANGES:
            found.append("...")
            break
        found.append(_write(first, last, step))
    return Ranges(len(ordered), ",".join(found))


def _write(first: int, last: int, step: int) -> str:
    if first == last:
        return str(first)
    return f"{first}-{last}" if step == 1 else f"{first}-{last}/{step}"


def _steps(ordered: list[int]) -> Iterator[tuple[int, int, int]]:
    """Runs of equal distance. Two ranks that are not neighbours do not make a run."""
    at = 0
    while at < len(ordered):
        end, step = at, 1
        if at + 1 < len(ordered):
            step = ordered[at + 1] - ordered[at]
            end = at + 1
            while end + 1 < len(ordered) and ordered[end + 1] - ordered[end] == step:
                end += 1
            if step > 1 and end - at < 2:
                end, step = at, 1
        yield ordered[at], ordered[end], step
        at = end + 1
