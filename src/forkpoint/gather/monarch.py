"""Hosts that run a Monarch worker: one actor in its own process on each. Other clients' processes are left alone.

Each host is its own mesh: in a shared mesh a dead host would fail the others, too.
"""

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import monarch.actor
from monarch.actor import Actor, HostMesh, MeshFailure, attach_to_workers, endpoint, shutdown_context

from forkpoint.errors import UsageError
from forkpoint.evidence import Progress
from forkpoint.evidence.summary_file import merge
from forkpoint.evidence.text import clean
from forkpoint.gather.cluster import read_here, summarise_here, summarise_on
from forkpoint.gather.engines import Answers, NodeAnswer, slow, without_forkpoint
from forkpoint.gather.tools import CallFailed

ACTORS = "forkpoint_nodes"
AT_ONCE = 256
_LIFE_S = 900.0
"""After the time for the answer. A client that was killed cannot end its processes, so they end themselves."""
_MERGE_S = 60.0
_STOP_S = 5.0
_BACKTRACE = re.compile(r"\s*(?:stack backtrace:|\d+: |at \S+:\d+$)", re.IGNORECASE | re.ASCII)
_ADDRESS = re.compile(r"(?:[\w<>-]{1,80}@)?(?:tcp|ipc|metatls)://[^\s,@]{1,300}", re.ASCII)


class NodeActor(Actor):
    """Keeps the summary on its node until somebody takes it."""

    def __init__(self, node: str, life_s: float) -> None:
        self._node = node
        self._summary = b""
        end = threading.Timer(life_s, os._exit, [1])
        end.daemon = True
        end.start()

    @endpoint
    def summarise(self, paths: list[str]) -> NodeAnswer:
        answer = summarise_here(paths, self._node)
        self._summary = answer.summary or b""
        return replace(answer, summary=None)

    @endpoint
    def merge(self, others: list[Any]) -> None:
        sent = [other.take.call_one() for other in others]
        self._summary = merge([self._summary, *(waiting.get(timeout=_MERGE_S) for waiting in sent)])

    @endpoint
    def take(self) -> bytes:
        return self._summary

    @endpoint
    def leave(self) -> None:
        os._exit(0)

    @endpoint
    def read_file(self, path: str) -> bytes | CallFailed:
        return read_here(path)


class MonarchNodes:
    """`hosts`: one mesh per host, by the name that prefixes its files."""

    def __init__(self, hosts: Mapping[str, HostMesh], node_timeout_s: float) -> None:
        self._hosts = hosts
        self._node_timeout_s = node_timeout_s
        self._procs: dict[str, Any] = {}
        self._actors: dict[str, Any] = {}
        self._silent: set[str] = set()
        self._unhandled = monarch.actor.unhandled_fault_hook
        monarch.actor.unhandled_fault_hook = self._on_fault

    def summarise(self, paths: Sequence[str], progress: Progress | None) -> Answers:
        return summarise_on(list(self._hosts), self._ask_all(list(paths)), self, progress)

    def merge(self, groups: Sequence[Sequence[str]]) -> list[bool]:
        """See cluster.Holders."""
        sent = [
            (group[0], self._actors[group[0]].merge.call_one([self._actors[n] for n in group[1:]])) for group in groups
        ]
        return [not isinstance(self._hear(node, waiting, _MERGE_S), CallFailed) for node, waiting in sent]

    def take(self, nodes: Sequence[str]) -> list[bytes | CallFailed]:
        """See cluster.Holders."""
        sent = [(node, self._actors[node].take.call_one()) for node in nodes]
        return [self._hear(node, waiting, _MERGE_S) for node, waiting in sent]

    def read_file(self, node: str, path: str) -> bytes | CallFailed:
        return self._hear(node, self._actors[node].read_file.call_one(path), self._node_timeout_s)

    def close(self) -> None:
        """Ends our processes on the hosts, then shuts Monarch down in this process, which cannot be undone."""
        for node in self._actors.keys() - self._silent:
            self._actors[node].leave.broadcast()
        ends = time.monotonic() + _STOP_S
        for node in self._silent:  # it may hang on a file: its host is asked to end it
            _wait(self._procs[node].stop(), ends)
        _wait(shutdown_context(host_timeout=_STOP_S), time.monotonic() + _STOP_S)
        monarch.actor.unhandled_fault_hook = self._unhandled

    def _ask_all(self, paths: list[str]) -> Iterator[NodeAnswer]:
        nodes = list(self._hosts)
        for at in range(0, len(nodes), AT_ONCE):
            began = time.monotonic()
            sent = [(node, _listen(self._start(node).summarise.call_one(paths))) for node in nodes[at : at + AT_ONCE]]
            for node, waiting in sent:
                got = self._hear(node, waiting, began + self._node_timeout_s - time.monotonic())
                failed = isinstance(got, CallFailed)
                yield NodeAnswer(node, None, got.why, time.monotonic() - began) if failed else got

    def _start(self, node: str) -> Any:
        self._procs[node] = self._hosts[node].spawn_procs(name=ACTORS)
        self._actors[node] = self._procs[node].spawn(ACTORS, NodeActor, node, self._node_timeout_s + _LIFE_S)
        return self._actors[node]

    def _hear(self, node: str, waiting: Any, limit_s: float) -> Any:
        """The answer, or CallFailed."""
        try:
            return waiting.get(timeout=max(0.0, limit_s))
        except TimeoutError:
            why = slow(node, self._node_timeout_s)
        except Exception as error:  # noqa: BLE001 - Monarch's errors have no common base, and the other nodes go on
            lacks = "No module named 'forkpoint" in str(error)
            why = without_forkpoint(node) if lacks else f"failed: {tell_error(error)}"
        self._silent.add(node)
        return CallFailed(why)

    def _on_fault(self, failure: MeshFailure) -> None:
        """Monarch's own hook would end this process. Failures of our actors are reported by the call that fails."""
        if ACTORS not in failure.mesh_name:
            self._unhandled(failure)


def open_monarch(addresses: Sequence[str], node_timeout_s: float) -> MonarchNodes:
    """Workers that listen there (`run_worker_loop_forever`). Raises UsageError."""
    if not addresses:
        raise UsageError(
            "--cluster monarch needs --hosts tcp://node1:22222,... or --hosts-file FILE: the workers' addresses"
        )
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            raise UsageError(f"{address}: is not the address of a Monarch worker, as in tcp://node1:22222")
    return MonarchNodes({address: _attach(address) for address in addresses}, node_timeout_s)


def tell_error(error: Exception) -> str:
    """The last line of its message. The part of Monarch that is written in Rust appends a backtrace."""
    told = [line.strip() for line in str(error).splitlines() if line.strip() and not _BACKTRACE.match(line)]
    return clean(told[-1] if told else type(error).__name__)


def _listen(waiting: Any) -> Any:
    """Starts to listen now. Otherwise the answer is polled only when it is needed, which may be too late."""
    with suppress(Exception):  # a failure is raised again by the next get
        waiting.get(timeout=0.0)
    return waiting


def _wait(stopping: Any, ends: float) -> None:
    try:
        stopping.get(timeout=max(0.0, ends - time.monotonic()))
    except Exception:  # noqa: BLE001 - Monarch's errors have no common base; what does not stop ends itself
        return


def _attach(address: str) -> HostMesh:
    return attach_to_workers(ca="trust_all_connections", workers=[address])
