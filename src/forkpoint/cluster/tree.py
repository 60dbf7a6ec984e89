"""Merges summaries on the nodes that hold them, in a tree, so that few of them travel here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from forkpoint.cluster.engines import Merged
from forkpoint.collect.call import CallFailed

FAN_IN = 16
"""Summaries merged at once. 12,500 nodes are four levels."""


class Holders(Protocol):
    """Nodes that keep a summary until it is taken."""

    def merge(self, groups: Sequence[Sequence[str]]) -> Sequence[bool]:
        """In each group the first node merges what all of them keep, and keeps that. Whether it did."""
        ...

    def take(self, nodes: Sequence[str]) -> Sequence[bytes | CallFailed]:
        """What each of them keeps."""
        ...


@dataclass(frozen=True, slots=True)
class Taken:
    merged: tuple[Merged, ...]
    lost: dict[str, str]
    """Nodes whose summary is in none of them, and why."""


def take_merged(nodes: Iterable[str], holders: Holders) -> Taken:
    """Takes what all nodes keep. A node that is lost meanwhile costs at most its own summary."""
    held: dict[str, tuple[str, ...]] = {node: (node,) for node in nodes}
    alone: dict[str, tuple[str, ...]] = {}
    while len(held) > FAN_IN:
        listed = list(held)
        groups = [listed[at : at + FAN_IN] for at in range(0, len(listed), FAN_IN)]
        level: dict[str, tuple[str, ...]] = {}
        for group, done in zip(groups, holders.merge(groups), strict=True):
            if done:
                level[group[0]] = tuple(node for holder in group for node in held[holder])
            else:
                alone |= {holder: held[holder] for holder in group}
        held = level
    return _take({**held, **alone}, holders)


def _take(held: dict[str, tuple[str, ...]], holders: Holders) -> Taken:
    merged: list[Merged] = []
    lost: dict[str, str] = {}
    orphans: list[str] = []
    for (holder, nodes), got in zip(held.items(), holders.take(list(held)), strict=True):
        if isinstance(got, bytes):
            merged.append(Merged(nodes, got))
        else:
            lost[holder] = got.why
            orphans += (node for node in nodes if node != holder)
    for node, got in zip(orphans, holders.take(orphans), strict=True):
        if isinstance(got, bytes):
            merged.append(Merged((node,), got))
        else:
            lost[node] = got.why
    return Taken(tuple(merged), lost)
