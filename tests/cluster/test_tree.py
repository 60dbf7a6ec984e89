"""The tree without an engine: nodes that keep sets of names, and fail as they are told to."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from forkpoint.gather.cluster import FAN_IN, take_merged
from forkpoint.gather.tools import CallFailed
from looping import for_each


class Names:
    """A summary is the names of the nodes it is of."""

    def __init__(self, count: int, dead: frozenset[int], dies_merging: frozenset[int]) -> None:
        self.nodes = [f"n{number}" for number in range(count)]
        self.kept = {node: {node} for node in self.nodes}
        self.dead = {f"n{number}" for number in dead}
        self.dies_merging = {f"n{number}" for number in dies_merging}
        self.widest = 0
        self.taken: list[str] = []

    def merge(self, groups: Sequence[Sequence[str]]) -> list[bool]:
        return [self._merge(group) for group in groups]

    def _merge(self, group: Sequence[str]) -> bool:
        self.widest = max(self.widest, len(group))
        if group[0] in self.dies_merging:
            self.dead.add(group[0])
        if self.dead & set(group):
            return False
        self.kept[group[0]] = set[str]().union(*(self.kept[node] for node in group))
        return True

    def take(self, nodes: Sequence[str]) -> list[bytes | CallFailed]:
        self.taken += nodes
        return [
            CallFailed(f"{node} is dead") if node in self.dead else ",".join(sorted(self.kept[node])).encode()
            for node in nodes
        ]


numbers = st.frozensets(st.integers(0, 599), max_size=60)


@given(count=st.integers(0, 600), dead=numbers, dies_merging=numbers)
def test_whoever_dies_costs_no_other_node_its_summary(
    count: int, dead: frozenset[int], dies_merging: frozenset[int]
) -> None:
    names = Names(count, dead, dies_merging)

    taken = take_merged(names.nodes, names)

    told = {name for merged in taken.merged for name in merged.summary.decode().split(",")}
    assert told >= set(names.nodes) - names.dead
    assert set(taken.lost) <= names.dead
    assert told | set(taken.lost) == set(names.nodes)
    assert names.widest <= FAN_IN


@for_each(("count", "comes_here"), [(1, 1), (16, 16), (17, 2), (256, 16), (4000, 16)])
def test_few_summaries_come_here_however_many_nodes_there_are(count: int, comes_here: int) -> None:
    names = Names(count, frozenset(), frozenset())

    taken = take_merged(names.nodes, names)

    assert len(names.taken) == len(taken.merged) == comes_here
    assert sorted(node for merged in taken.merged for node in merged.nodes) == sorted(names.nodes)
