"""All pairs of ranks in rounds, in each of which every rank is in one pair at most."""

Pair = tuple[int, int]


def rounds_of_pairs(world: int) -> tuple[tuple[Pair, ...], ...]:
    """The circle method: one seat stays, the others move on by one. With an odd number one rank rests in each round."""
    seats = list(range(world + world % 2))
    found: list[tuple[Pair, ...]] = []
    for _ in range(len(seats) - 1):
        facing = zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True)
        found.append(tuple(sorted((min(p), max(p)) for p in facing if max(p) < world)))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(found)
