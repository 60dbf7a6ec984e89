"""Ranks that wait for each other in a ring."""

from collections.abc import Iterator, Sequence

from forkpoint.diverge.waits import Waits

_Way = dict[int, Iterator[int]]
"""Nodes in the order in which they were come to, each with those that follow it. A rank is a node; so is who waits in one
slot, below zero: however many wait for however many, that is one node between them."""


def find_cycle(waits: Waits) -> tuple[int, ...]:
    """Ranks that wait for each other in a ring, each for the next; empty without one.

    From a rank the way leads to all whom it holds up. What was looked at once is not looked at again.
    """
    holds_up: dict[int, list[int]] = {}
    for number, waiting in enumerate(waits.waiting, 1):
        for rank in sorted(waiting.held.on):
            if rank in waits:
                holds_up.setdefault(rank, []).append(-number)
    seen: set[int] = set()
    for start in _starts(waits):
        ring = [node for node in _ring_from(start, holds_up, waits, seen) if node >= 0]
        if ring:
            ring.reverse()  # who is held up comes after who holds it up
            first = ring.index(min(ring))
            return (*ring[first:], *ring[:first])
    return ()


def _starts(waits: Waits) -> Iterator[int]:
    """Every node, in an order that does not depend on files."""
    numbers = {waiting.ranks[0]: number for number, waiting in enumerate(waits.waiting, 1)}
    for rank in sorted(waits):
        yield rank
        if rank in numbers:
            yield -numbers[rank]
            yield from sorted(other for other in waits.waiting[numbers[rank] - 1].held.on if other in waits)


def _ring_from(start: int, holds_up: dict[int, list[int]], waits: Waits, seen: set[int]) -> Sequence[int]:
    """The first ring that the way from a node runs into."""
    way: _Way = {}
    node: int | None = start
    while node is not None:
        if node in way:
            nodes = list(way)
            return nodes[nodes.index(node) :]
        if node not in seen:
            seen.add(node)
            way[node] = iter(waits.waiting[-node - 1].ranks if node < 0 else holds_up.get(node, ()))
        node = _next_on(way)
    return ()


def _next_on(way: _Way) -> int | None:
    """Where the way goes on from the last of its nodes that has another to follow; those behind it are left."""
    while way:
        last = next(reversed(way))
        following = next(way[last], None)
        if following is not None:
            return following
        del way[last]
    return None
