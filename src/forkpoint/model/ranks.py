"""Rank lists short enough to read."""

from collections.abc import Iterable, Iterator


def format_ranks(ranks: Iterable[int], max_ranges: int | None = None) -> str:
    """`0-6,8,10-1023`; past `max_ranges` ranges the rest is only counted: `0,2,4,... (512 ranks)`."""
    ordered = sorted(set(ranks))
    ranges = [str(first) if first == last else f"{first}-{last}" for first, last in _ranges(ordered)]
    if max_ranges is None or len(ranges) <= max_ranges:
        return ",".join(ranges)
    return f"{','.join(ranges[:max_ranges])},... ({len(ordered)} ranks)"


def name_ranks(ranks: Iterable[int], max_ranges: int = 8) -> str:
    """`rank 3`, `ranks 0-6,8`."""
    members = set(ranks)
    return f"{'rank' if len(members) == 1 else 'ranks'} {format_ranks(members, max_ranges)}"


def _ranges(ordered: list[int]) -> Iterator[tuple[int, int]]:
    if not ordered:
        return
    first = last = ordered[0]
    for rank in ordered[1:]:
        if rank != last + 1:
            yield first, last
            first = rank
        last = rank
    yield first, last
