"""The nodes of a running Ray cluster: one task pinned to each, which takes none of its resources. Starts no cluster."""

import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray._private.services import canonicalize_bootstrap_address
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from forkpoint.errors import UsageError
from forkpoint.evidence import Progress
from forkpoint.evidence.summary_file import merge
from forkpoint.gather.cluster import read_here, summarise_here, summarise_on
from forkpoint.gather.engines import Answers, NodeAnswer, slow, without_forkpoint
from forkpoint.gather.tools import CallFailed

AT_ONCE = 256
"""Tasks at the same time, each on a different node."""
_MERGE_S = 60.0
_HEAD_S = 10.0
"""For the head to accept a connection."""


@dataclass(frozen=True, slots=True)
class _Asked:
    node: str
    head: Any
    """Reference to the answer without its summary, which is transferred only if no node merges it."""
    summary: Any
    began: float


class RayNodes:
    def __init__(self, node_timeout_s: float) -> None:
        self._node_timeout_s = node_timeout_s
        self._held: dict[str, Any] = {}
        """References to the summaries on the nodes."""
        self._ids = _name_nodes([node for node in ray.nodes() if node["Alive"]])

    def summarise(self, paths: Sequence[str], progress: Progress | None) -> Answers:
        return summarise_on(list(self._ids), self._ask_all(paths), self, progress)

    def merge(self, groups: Sequence[Sequence[str]]) -> list[bool]:
        """See cluster.Holders. Summaries go from node to node, not through this process."""
        sent = [self._on(g[0], _merge, answers=2).remote(*(self._held[node] for node in g)) for g in groups]
        ends = time.monotonic() + _MERGE_S
        done: list[bool] = []
        for group, (head, merged) in zip(groups, sent, strict=True):
            done.append(self._get(group[0], head, ends - time.monotonic()) is True)
            if done[-1]:
                self._held[group[0]] = merged
        return done

    def take(self, nodes: Sequence[str]) -> list[bytes | CallFailed]:
        """See cluster.Holders."""
        return [self._get(node, self._held[node], _MERGE_S) for node in nodes]

    def read_file(self, node: str, path: str) -> bytes | CallFailed:
        return self._get(node, self._on(node, read_here).remote(path), self._node_timeout_s)

    def close(self) -> None:
        ray.shutdown()

    def _on(self, node: str, function: Callable[..., Any], answers: int = 1) -> Any:
        """Needs no CPU: the job that hangs may have reserved them all."""
        bound = NodeAffinitySchedulingStrategy(self._ids[node], soft=False)
        task: Any = ray.remote(function)
        return task.options(num_cpus=0, max_retries=0, num_returns=answers, scheduling_strategy=bound)

    def _ask_all(self, paths: Sequence[str]) -> Iterator[NodeAnswer]:
        waiting = list(reversed(self._ids))
        asked: dict[Any, _Asked] = {}
        while waiting or asked:
            while waiting and len(asked) < AT_ONCE:
                node = waiting.pop()
                head, summary = self._on(node, _summarise, answers=2).remote(list(paths), node)
                asked[head] = _Asked(node, head, summary, time.monotonic())
            patience = min(one.began for one in asked.values()) + self._node_timeout_s - time.monotonic()
            ready, _ = ray.wait(list(asked), timeout=max(0.0, patience))
            late = [] if ready else [h for h, one in asked.items() if self._seconds_left(one) <= 0]
            for head in (*ready, *late):
                one = asked.pop(head)
                self._held[one.node] = one.summary
                yield self._answer(one)

    def _seconds_left(self, asked: _Asked) -> float:
        return asked.began + self._node_timeout_s - time.monotonic()

    def _answer(self, asked: _Asked) -> NodeAnswer:
        got = self._get(asked.node, asked.head, 0)
        return (
            NodeAnswer(asked.node, None, got.why, time.monotonic() - asked.began)
            if isinstance(got, CallFailed)
            else got
        )

    def _get(self, node: str, sent: Any, limit_s: float) -> Any:
        """The value, or CallFailed."""
        try:
            return ray.get(sent, timeout=max(0.0, limit_s))
        except RayError as error:
            ray.cancel(sent, force=True)  # what nobody waits for any longer must not stay on the node
            return CallFailed(self._why(node, error))

    def _why(self, node: str, error: RayError) -> str:
        if isinstance(error, TimeoutError):
            return slow(node, self._node_timeout_s)
        told = str(error.cause if isinstance(error, RayTaskError) else error)
        if "No module named 'forkpoint" in told:
            return without_forkpoint(node)
        first = told.strip().partition("\n")[0].partition(". ")[0]
        return f"{first}; see `ray list nodes`, and copy its dumps here by hand if its disk still works"


def open_ray(address: str, node_timeout_s: float) -> RayNodes:
    """Connects to a running cluster. Raises UsageError."""
    try:
        _reach_head(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except (OSError, RayError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"--cluster ray: no Ray cluster at {address} ({error}); name its head with --address"
        ) from error
    return RayNodes(node_timeout_s)


def _reach_head(address: str) -> None:
    """Raises OSError. Ray remembers a machine's last cluster (/tmp/ray/ray_current_cluster) after it has died; connecting to
    that takes minutes, and then Ray ends this process.
    """
    if "://" in address:  # Ray's client, which raises
        return
    head = canonicalize_bootstrap_address(address)
    if head is not None:
        host, _, port = head.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), _HEAD_S).close()


def _summarise(paths: list[str], node: str) -> tuple[NodeAnswer, bytes]:
    answer = summarise_here(paths, node)
    return replace(answer, summary=None), answer.summary or b""


def _merge(*parts: bytes) -> tuple[bool, bytes]:
    """Done, and the result, which is transferred here only if no node merges it further."""
    return True, merge(parts)


def _name_nodes(nodes: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Host name -> Ray's node id. If a host has several, the beginning of the id is added to the name."""
    hosts = [node["NodeManagerHostname"] for node in nodes]
    named = zip(hosts, (node["NodeID"] for node in nodes), strict=True)
    return {host if hosts.count(host) == 1 else f"{host}-{identity[:8]}": identity for host, identity in named}
