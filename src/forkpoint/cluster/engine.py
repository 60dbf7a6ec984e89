"""What an engine does, and what nodes answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from forkpoint.collect.call import Failed
from forkpoint.ingest import Progress

NODE_TIMEOUT_S = 60.0
"""For a node to start Python, read its dumps and answer: 8 dumps take well under a second."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    node: str
    summary: bytes | None
    """None: there is a problem, or other nodes have merged it already."""
    problem: str | None
    """Why there is nothing of this node, and the next step."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Merged:
    """One summary of several nodes, merged by one of them."""

    nodes: tuple[str, ...]
    summary: bytes


@dataclass(frozen=True, slots=True)
class Answers:
    """What all nodes answered."""

    nodes: tuple[NodeAnswer, ...]
    merged: tuple[Merged, ...] = ()


class Engine(Protocol):
    """A way to the nodes of a job. It starts no cluster, and leaves nothing on the nodes."""

    def summarise(self, paths: Sequence[str], progress: Progress | None) -> Answers: ...

    def read_file(self, node: str, path: str) -> bytes | Failed:
        """The whole file, as it lies there, unless it is larger than a dump may be."""
        ...

    def close(self) -> None: ...


def slow(node: str, limit_s: float) -> str:
    return f"no answer after {limit_s:g} s: {node} is down or slow; ask again with a longer --node-timeout"


def without_forkpoint(node: str) -> str:
    return f"has no forkpoint: pip install forkpoint on {node}, in the Python that runs there"
