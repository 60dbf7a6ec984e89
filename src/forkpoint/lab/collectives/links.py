"""Which pair of ranks is slow, and whether that is a link, a rank or a host.

The expected speed of a link is unknown, so a pair is compared with others of its class: pairs on one host, or pairs across
hosts. First all pairs are timed, half the world at once. A pair that takes twice its class's median is timed again alone,
and so are some pairs that were not suspicious, in turns, up to eight times. It is slow if even its fastest exchange takes
three times as long as theirs; if only eight bytes are slow, large messages must lose time, too. So a busy machine makes no
link look slow, and a link that is slow only at times is not named: its 95th percentile shows it.

The part that is blamed is what all slow pairs have in common.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median_low

# ---------------------------------------------------------------------------------------------------------------------
# All pairs of ranks in rounds, in each of which every rank is in one pair at most.

Pair = tuple[int, int]


def rounds_of_pairs(world: int) -> tuple[tuple[Pair, ...], ...]:
    """The circle method of round-robin tournaments. With an odd number of ranks one rests in each round."""
    seats = list(range(world + world % 2))
    found: list[tuple[Pair, ...]] = []
    for _ in range(len(seats) - 1):
        facing = zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True)
        found.append(tuple(sorted((min(p), max(p)) for p in facing if max(p) < world)))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(found)


# ---------------------------------------------------------------------------------------------------------------------
# Which pair of ranks is slow, and whether that is a link, a rank or a host.

SUSPICIOUS = 2.0
SLOW = 3.0
_MOST_AGAIN = 64
"""Suspicious pairs that are timed again: of more, the slowest."""
_CONTROLS = 5
REPEATS = 8
"""At most: a pair that was as fast as others once is not timed again."""
_FEWEST_PAIRS = 3
"""A class with fewer pairs has nothing to compare with."""
_LEAST_NS = 50_000
"""A pair must lose more time than this: below it a factor means nothing."""
_MOST_OF_ITS_PAIRS = 2 / 3


class Measure(StrEnum):
    SMALL = "small"
    """Eight bytes: the latency."""
    LARGE = "large"
    """The bytes of --pair-size both ways: the bandwidth."""


@dataclass(frozen=True, slots=True)
class PairTimes:
    """Nanoseconds of each exchange, from the end that waited longer."""

    pair: Pair
    small: tuple[int, ...]
    large: tuple[int, ...]

    def fastest(self, measure: Measure) -> int:
        """What the link can do. Anything slower may be due to other work on the machine."""
        return min(self.small if measure is Measure.SMALL else self.large)


@dataclass(frozen=True, slots=True)
class Again:
    """What is timed alone."""

    suspicious: tuple[Pair, ...]
    controls: tuple[Pair, ...]
    left_out: tuple[Pair, ...] = ()
    """Also suspicious, but too many to be timed again: they are not judged."""


NONE_AGAIN = Again((), ())


@dataclass(frozen=True, slots=True)
class SlowPair:
    pair: Pair
    measure: Measure
    alone_ns: int
    usual_ns: int

    @property
    def factor(self) -> float:
        return self.alone_ns / max(self.usual_ns, 1)

    @property
    def lost_ns(self) -> int:
        return self.alone_ns - self.usual_ns

    @property
    def is_slow(self) -> bool:
        return self.factor >= SLOW and self.lost_ns > _LEAST_NS


class Part(StrEnum):
    LINK = "link"
    RANK = "rank"
    HOST = "host"
    HOSTS = "between-hosts"


@dataclass(frozen=True, slots=True)
class Blame:
    part: Part
    name: str
    """`0-5`, `rank 3`, `node7`, `node7 and node9`."""
    ranks: tuple[int, ...]
    pairs: tuple[SlowPair, ...]
    why: str


Hosts = Mapping[int, str]


def choose_again(times: Iterable[PairTimes], hosts: Hosts) -> Again:
    """Does not depend on the order of the times."""
    suspicious: dict[Pair, float] = {}
    calm: list[list[PairTimes]] = []
    for _, members in sorted(_classes(times, hosts).items()):
        usual = {measure: max(median_low([one.fastest(measure) for one in members]), 1) for measure in Measure}
        factors = {one.pair: max(one.fastest(m) / usual[m] for m in Measure) for one in members}
        odd = {pair: by for pair, by in factors.items() if by >= SUSPICIOUS and len(members) >= _FEWEST_PAIRS}
        suspicious |= odd
        if odd:
            calm.append([one for one in members if one.pair not in odd])
    ordered = sorted(suspicious, key=lambda pair: (-suspicious[pair], pair))
    controls = [one.pair for members in calm for one in _controls(members, ordered[:_MOST_AGAIN])]
    return Again(tuple(sorted(ordered[:_MOST_AGAIN])), tuple(sorted(controls)), tuple(sorted(ordered[_MOST_AGAIN:])))


def _controls(calm: Sequence[PairTimes], suspicious: Sequence[Pair]) -> Sequence[PairTimes]:
    """Prefers pairs whose ranks are in no suspicious pair, since a single rank may be slow."""
    doubted = {rank for pair in suspicious for rank in pair}
    return sorted(calm, key=lambda one: (len(doubted & {*one.pair}), one.pair))[:_CONTROLS]


def find_slow(again: Again, alone: Sequence[PairTimes], hosts: Hosts) -> tuple[SlowPair, ...]:
    """Suspicious pairs that were slow alone too. `alone`: every repeat of every pair."""
    best = {measure: _fastest(alone, measure) for measure in Measure}
    found: list[SlowPair] = []
    for pair in again.suspicious:
        small, large = (_compared(pair, best[measure], again, hosts, measure) for measure in Measure)
        if large is not None and large.is_slow:
            found.append(large)
        elif small is not None and large is not None and small.is_slow and large.lost_ns >= small.lost_ns / 2:
            found.append(small)  # what delays eight bytes delays large messages, too
    return tuple(found)


def _fastest(alone: Iterable[PairTimes], measure: Measure) -> dict[Pair, int]:
    found: dict[Pair, int] = {}
    for one in alone:
        found[one.pair] = min(one.fastest(measure), found.get(one.pair, one.fastest(measure)))
    return found


def _compared(pair: Pair, best: Mapping[Pair, int], again: Again, hosts: Hosts, measure: Measure) -> SlowPair | None:
    """None: one side did not report, or no other pair of its class was timed."""
    across = _is_across(pair, hosts)
    peers = [best[other] for other in again.controls if other in best and _is_across(other, hosts) == across]
    return SlowPair(pair, measure, best[pair], median_low(peers)) if pair in best and peers else None


def blame(slow: Sequence[SlowPair], timed: Iterable[Pair], hosts: Hosts) -> tuple[Blame, ...]:
    """Each slow pair is explained once: by a host, a rank, two hosts, or by itself. `timed`: those that were judged."""
    left, found = list(slow), list[Blame]()
    pairs = list(timed)
    for explain in (_hosts_at_fault, _ranks_at_fault, _between_hosts):
        for one in explain(left, pairs, hosts):
            found.append(one)
            left = [pair for pair in left if pair not in one.pairs]
    links = [
        Blame(Part.LINK, f"{s.pair[0]}-{s.pair[1]}", s.pair, (s,), "no other pair of its ranks is slow") for s in left
    ]
    shared = {rank for rank, count in Counter(r for s in left for r in s.pair).items() if count > 1}
    return (*found, *(_with_doubt(link, shared) for link in links))


def _with_doubt(link: Blame, shared: set[int]) -> Blame:
    if not shared & {*link.ranks}:
        return link
    again = ", ".join(f"rank {rank}" for rank in sorted(shared & {*link.ranks}))
    return Blame(
        link.part,
        link.name,
        link.ranks,
        link.pairs,
        f"{again} is in other slow pairs too, but not in most of its pairs",
    )


def _hosts_at_fault(slow: Sequence[SlowPair], timed: Sequence[Pair], hosts: Hosts) -> list[Blame]:
    """A host whose ranks are all slow towards other hosts: its adapter, cable or port."""
    ends = [pair for pair in timed if _is_across(pair, hosts)]
    out = Counter(hosts[rank] for pair in ends for rank in pair)
    found: list[Blame] = []
    for host in sorted({hosts[rank] for s in slow for rank in s.pair}):
        ranks = tuple(rank for rank in sorted(hosts) if hosts[rank] == host)
        mine = tuple(s for s in slow if _is_across(s.pair, hosts) and host in (hosts[s.pair[0]], hosts[s.pair[1]]))
        if len(ranks) > 1 and len(out) > 2 and mine and len(mine) >= _MOST_OF_ITS_PAIRS * out[host]:
            why = f"{len(mine)} of its {out[host]} pairs with other hosts are slow, whichever of its ranks is in them"
            found.append(Blame(Part.HOST, host, ranks, mine, why))
    return found if len(found) * 2 < len(out) else []


def _ranks_at_fault(slow: Sequence[SlowPair], timed: Sequence[Pair], hosts: Hosts) -> list[Blame]:
    own = Counter(rank for pair in timed for rank in pair)
    most = Counter(rank for s in slow for rank in s.pair)
    found: list[Blame] = []
    left = list(slow)
    for rank in sorted(most, key=lambda r: (-most[r], r)):
        mine = tuple(s for s in left if rank in s.pair)
        if own[rank] >= _FEWEST_PAIRS and len(mine) >= _MOST_OF_ITS_PAIRS * own[rank]:
            why = f"{len(mine)} of its {own[rank]} pairs are slow, with different peers"
            found.append(Blame(Part.RANK, f"rank {rank} on {hosts[rank]}", (rank,), mine, why))
            left = [s for s in left if s not in mine]
    return found


def _between_hosts(slow: Sequence[SlowPair], timed: Sequence[Pair], hosts: Hosts) -> list[Blame]:
    own = Counter(frozenset((hosts[a], hosts[b])) for a, b in timed)
    found: list[Blame] = []
    for both in sorted({frozenset(hosts[rank] for rank in s.pair) for s in slow}, key=sorted):
        mine = tuple(s for s in slow if frozenset(hosts[rank] for rank in s.pair) == both)
        if len(both) == 2 and len(mine) > 1 and len(mine) == own[both]:
            ranks = tuple(sorted({rank for s in mine for rank in s.pair}))
            why = f"all {len(mine)} pairs between the two are slow, and none of either with other hosts"
            found.append(Blame(Part.HOSTS, " and ".join(sorted(both)), ranks, mine, why))
    return found


def _classes(times: Iterable[PairTimes], hosts: Hosts) -> dict[bool, list[PairTimes]]:
    found: dict[bool, list[PairTimes]] = {}
    for one in sorted(times, key=lambda t: t.pair):
        found.setdefault(_is_across(one.pair, hosts), []).append(one)
    return found


def _is_across(pair: Pair, hosts: Hosts) -> bool:
    return hosts[pair[0]] != hosts[pair[1]]
