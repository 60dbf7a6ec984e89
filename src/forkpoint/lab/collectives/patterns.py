"""What ranks send, and what must come back, bit for bit.

All values are small integers, so that every sum is exact in every type, whatever its order: bfloat16 counts to 256.
The period of the patterns is prime, so a chunk that arrives in the wrong place has wrong values there.
"""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.int64]

_PERIOD = 199
"""Prime, and all values below it fit into eight bits."""
_PER_MEMBER, _PER_SEED, _PER_PART = 37, 101, 61
_MOST_ADDENDS = 80
"""Each is at most 3, so the largest sum is 240."""
_EIGHT = 8
"""Fewer than this many factors of two fit into eight bits."""
POISON = 251
"""Fills output buffers before the call: no pattern and no result has this value."""


def moved(member: int, count: int, *, seed: int, part: int = 0, start: int = 0) -> Values:
    """What a member sends, or its part for one other member, from element `start` on."""
    index = np.arange(start, start + count, dtype=np.int64)
    return (index + _PER_MEMBER * member + _PER_PART * part + _PER_SEED * seed) % _PERIOD


def as_bits(values: Values) -> Values:
    """For booleans: one bit of each value, mixed so that neighbours are independent."""
    return (values * 0x9E37 >> 7) & 1


def addend(member: int, members: int, count: int, *, seed: int, start: int = 0) -> Values:
    """In a large group about 80 members contribute to each element, in turns."""
    index = np.arange(start, start + count, dtype=np.int64)
    values = moved(member, count, seed=seed, start=start) % 4
    turns = -(-members // _MOST_ADDENDS)
    return np.where((index + member) % turns == 0, values, 0)


def factor(member: int, members: int, count: int, *, seed: int) -> Values:
    index = np.arange(count, dtype=np.int64) + seed
    return np.where((index + member) % max(members, _EIGHT) < index % _EIGHT, 2, 1)


def total(members: int, count: int, *, seed: int, start: int = 0) -> Values:
    return sum(
        (addend(m, members, count, seed=seed, start=start) for m in range(members)), start=np.zeros(count, np.int64)
    )


def product(members: int, count: int, *, seed: int) -> Values:
    result = np.ones(count, np.int64)
    for member in range(members):
        result *= factor(member, members, count, seed=seed)
    return result


def extreme(members: int, count: int, *, seed: int, largest: bool) -> Values:
    choose = np.maximum if largest else np.minimum
    result = moved(0, count, seed=seed)
    for member in range(1, members):
        result = choose(result, moved(member, count, seed=seed))
    return result


def uneven_split(sender: int, receiver: int, members: int, chunk: int) -> int:
    """Elements from one member to another: differs between pairs, about `chunk` times `members` in total."""
    return max(chunk + (sender * 3 + receiver * 5) % members - members // 2, 0)
