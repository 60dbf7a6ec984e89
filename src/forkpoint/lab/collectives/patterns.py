"""What ranks send, and what must come back to the bit.

All values are small integers, so that every sum, whatever its order, is exact in every type: bfloat16 counts to 256.
Patterns repeat after a number of elements that no chunk is a multiple of: what lands in a wrong place is wrong there.
"""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.int64]

_PERIOD = 199
"""Prime, and all values below it fit into eight bits."""
_PER_MEMBER, _PER_SEED, _PER_PART = 37, 101, 61
_MOST_ADDENDS = 80
"""Of at most 3 each: 240 is the largest sum."""
_EIGHT = 8
"""Less than so many factors of two fit into eight bits."""
POISON = 251
"""What output buffers hold before: no pattern and no result has it."""


def moved(member: int, count: int, *, seed: int, part: int = 0, start: int = 0) -> Values:
    """What a member sends, or its part for one other member, from element `start` on."""
    index = np.arange(start, start + count, dtype=np.int64)
    return (index + _PER_MEMBER * member + _PER_PART * part + _PER_SEED * seed) % _PERIOD


def as_bits(values: Values) -> Values:
    """For booleans: a bit of each value, mixed so that neighbours say nothing of each other."""
    return (values * 0x9E37 >> 7) & 1


def addend(member: int, members: int, count: int, *, seed: int, start: int = 0) -> Values:
    """In a group of many each element is added up by some 80 members, and every member takes its turn."""
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
    """Elements from one member to another: unlike for every pair, all together about `chunk` times `members`."""
    return max(chunk + (sender * 3 + receiver * 5) % members - members // 2, 0)
