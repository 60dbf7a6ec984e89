"""Did all ranks issue the same collectives?"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from forkpoint.controller.answers import IssuedOps, RecorderLook, Returned
from forkpoint.diverge.vote import odd_ranks
from forkpoint.model.ranks import name_ranks
from forkpoint.model.world import ProcessGroup


@dataclass(frozen=True, slots=True)
class Split:
    """Members of one group that did not issue the same collectives."""

    group: ProcessGroup
    sides: tuple[tuple[int, ...], ...]
    """Ranks that did, the most numerous first."""
    did: tuple[str, ...]
    """What each side did."""

    @property
    def odd(self) -> tuple[int, ...]:
        """Outside a strict majority; empty where there is none. All members have answered."""
        return odd_ranks(self.sides, unknown=0)

    def __str__(self) -> str:
        told = (f"{name_ranks(ranks)} {did}" for ranks, did in zip(self.sides, self.did, strict=True))
        return f"in {self.group}: {'; '.join(told)}"


def find_unequal_counts(told: Sequence[Returned] | Sequence[RecorderLook]) -> tuple[Split, ...]:
    return _split((rank.rank, count.group, f"counts {count.seq}") for rank in told for count in rank.counts)


def find_other_ops(looks: Sequence[RecorderLook]) -> tuple[Split, ...]:
    """Groups whose members have issued other collectives, as far back as all of them remember."""
    held: dict[ProcessGroup, dict[int, IssuedOps]] = {}
    for look in looks:
        for issued in look.issued:
            held.setdefault(issued.group, {})[look.rank] = issued
    return _split(fact for group, by_rank in held.items() for fact in _deeds(group, by_rank))


def _deeds(group: ProcessGroup, held: dict[int, IssuedOps]) -> Iterator[tuple[int, ProcessGroup, str]]:
    if all(issued.from_start for issued in held.values()):
        for rank, issued in held.items():
            yield rank, group, f"issued {issued.count} collectives (digest {issued.digests[-1]})"
        return
    power = min(issued.count for issued in held.values()).bit_length() - 1
    for rank, issued in held.items():
        yield rank, group, f"issued last {1 << power} collectives with digest {issued.digests[power]}"


def _split(told: Iterable[tuple[int, ProcessGroup, str]]) -> tuple[Split, ...]:
    """Of groups all of whose members have told: what the others did could turn the majority over."""
    sides: dict[ProcessGroup, dict[str, list[int]]] = {}
    for rank, group, did in told:
        sides.setdefault(group, {}).setdefault(did, []).append(rank)
    unequal = [(g, by_deed) for g, by_deed in sides.items() if len(by_deed) > 1]
    return tuple(_ordered(g, d) for g, d in sorted(unequal) if sum(map(len, d.values())) == len(g.ranks))


def _ordered(group: ProcessGroup, by_deed: dict[str, list[int]]) -> Split:
    ordered = sorted(by_deed.items(), key=lambda item: (-len(item[1]), min(item[1])))
    return Split(group, tuple(tuple(sorted(ranks)) for _, ranks in ordered), tuple(did for did, _ in ordered))
