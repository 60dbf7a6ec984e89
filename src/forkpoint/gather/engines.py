"""Engines: ways to the nodes of a job, and what the nodes answer.

ssh and Slurm start a program on each node through the site's own tools and read what it prints. Two fixed scripts run
there. What a user gives (paths, a Python, a node) reaches them as lines of standard input, so that none of it is taken for
a command. Ray and Monarch are large and have their own modules, imported only when needed.
"""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from forkpoint.errors import UsageError
from forkpoint.evidence import Progress
from forkpoint.gather.remote import SAY_BEGIN, SSH_HOST, SSH_OPTIONS, parse_srun, skip_greeting
from forkpoint.gather.tools import CallFailed, Running, running, tell_failure
from forkpoint.traces.dump import MAX_BYTES

NODE_TIMEOUT_S = 60.0
"""For a node to start Python, read its dumps and answer: 8 dumps take well under a second."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    node: str
    summary: bytes | None
    """None: there is a problem, or other nodes have merged it already."""
    problem: str | None
    """Why there is nothing from this node, and the next step."""
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
    missing: str | None = None
    """Why there may have been more nodes."""


@dataclass(frozen=True, slots=True)
class ClusterReach:
    """How the nodes are reached; each engine takes what it needs."""

    hosts: tuple[str, ...] = ()
    """Host names; for Monarch, addresses of workers."""
    job: str | None = None
    """Slurm's job id."""
    address: str = "auto"
    """The address of Ray's head."""
    python: str = "python3"
    """What ssh and srun start on the nodes."""
    node_timeout_s: float = NODE_TIMEOUT_S


class Engine(Protocol):
    """A way to the nodes of a job. It starts no cluster, and leaves nothing on the nodes."""

    def summarise(self, paths: Sequence[str], progress: Progress | None) -> Answers: ...

    def read_file(self, node: str, path: str) -> bytes | CallFailed:
        """The whole file, unless it is larger than a dump may be."""
        ...

    def close(self) -> None: ...


def slow(node: str, limit_s: float) -> str:
    return f"no answer after {limit_s:g} s: {node} is down or slow; ask again with a longer --node-timeout"


def without_forkpoint(node: str) -> str:
    return f"has no forkpoint: pip install forkpoint on {node}, in the Python that runs there"


AT_ONCE = 32
"""Each is a process here that mostly waits."""
_MAX_SUMMARY = 256 << 20
"""A node with 1,000 ranks and all their logs stays far below."""
_LISTING_S = 60.0
_TIMED_OUT = "exit code 124"
"""From the node's own `timeout`, which has the same limit: on a busy machine it may fire first."""
_NO_MODULE = ("No module named forkpoint", "exit code 127")

_SUMMARISE = (
    f"{SAY_BEGIN}; "
    "IFS= read -r python; IFS= read -r seconds; IFS= read -r node; "
    "set --; while IFS= read -r path; do "
    'case $path in "~/"*) path=$HOME/${path#??} ;; esac; '
    'set -- "$@" "$path"; done; '
    # What nobody waits for any longer must not stay on the node.
    'limit=; command -v timeout >/dev/null && limit="timeout $seconds"; '
    'exec $limit "$python" -m forkpoint summarise --output - --origin "$node" -- "$@"'
)
_READ = f'{SAY_BEGIN}; IFS= read -r path; exec head -c {MAX_BYTES + 1} "$path"'

_Argv = Mapping[str, Callable[[str], tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Commands:
    """Nodes that are reached by running a command."""

    argv: _Argv
    """Node -> the arguments that run an sh script there."""
    node_timeout_s: float
    python: str = "python3"
    missing: str | None = None
    """Why there may have been more nodes."""

    def summarise(self, paths: Sequence[str], progress: Progress | None) -> Answers:
        nodes = list(self.argv)
        answers: dict[str, NodeAnswer] = {}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done in as_completed([pool.submit(self._ask, node, paths) for node in nodes]):
                answer = done.result()
                answers[answer.node] = answer
                if progress:
                    progress(len(answers), len(nodes), answer.node)
        return Answers(tuple(answers[node] for node in nodes), missing=self.missing)

    def read_file(self, node: str, path: str) -> bytes | CallFailed:
        with running(self.argv[node](_READ), f"{path}\n".encode(), self.node_timeout_s) as tool:
            data = _answer(tool, MAX_BYTES + 1)
        if tool.failed:
            return tool.failed
        return CallFailed("is larger than a dump may be") if len(data) > MAX_BYTES else data

    def close(self) -> None:
        """Nothing stays open between calls."""

    def _ask(self, node: str, paths: Sequence[str]) -> NodeAnswer:
        began = time.monotonic()
        lines = (self.python, str(ceil(self.node_timeout_s)), node, *paths)
        question = "".join(f"{line}\n" for line in lines).encode()
        with running(self.argv[node](_SUMMARISE), question, self.node_timeout_s) as tool:
            answer = _answer(tool, _MAX_SUMMARY)
        seconds = time.monotonic() - began
        if tool.failed:
            return NodeAnswer(node, None, self.explain(node, tool.failed), seconds)
        return NodeAnswer(node, answer, None, seconds)

    def explain(self, node: str, failed: CallFailed) -> str:
        """Why it did not answer, and the next step."""
        if "not done after" in failed.why or _TIMED_OUT in failed.why:
            return slow(node, self.node_timeout_s)
        if any(sign in failed.why for sign in _NO_MODULE):
            return f"{without_forkpoint(node)}; --node-python names another ({failed.why})"
        return tell_failure(node, failed, "--node-timeout")


def _answer(tool: Running, limit: int) -> bytes:
    if tool.failed is not None:
        return b""
    skip_greeting(tool.answer)
    return tool.answer.read(limit)


def open_ssh(reach: ClusterReach) -> Commands:
    if not reach.hosts:
        raise UsageError("--cluster ssh needs --hosts a,b,c or --hosts-file FILE")
    for host in reach.hosts:
        if not SSH_HOST.fullmatch(host):
            raise UsageError(f"{host}: is not a host name, as in node1 or user@node1")
    argv: _Argv = {host: lambda script, host=host: _ssh_argv(host, script) for host in reach.hosts}
    return Commands(argv, reach.node_timeout_s, reach.python)


def _ssh_argv(host: str, script: str) -> tuple[str, ...]:
    # ssh passes its command to a shell on the other side.
    return ("ssh", *SSH_OPTIONS, "--", host, f"exec sh -c {shlex.quote(script)}")


def open_slurm(reach: ClusterReach) -> Commands:
    """All nodes of the job, or those named in `hosts`: one step with one task on each, which takes no resources."""
    job, hosts = reach.job, reach.hosts
    if not job:
        raise UsageError("--cluster slurm needs --jobid N: the running job whose nodes have the dumps")
    targets = parse_srun(f"srun:{job}").find_targets(_LISTING_S)
    if isinstance(targets, CallFailed):
        raise UsageError(targets.why)
    # Each command ends in `sh -c SCRIPT`: replace the script.
    fronts = {target.label: target.argv[:-1] for target in targets.machines if not hosts or target.label in hosts}
    if unknown := [host for host in hosts if host not in fronts]:
        raise UsageError(f"--hosts {unknown[0]}: is not a node of job {job}")
    argv: _Argv = {node: lambda script, front=front: (*front, script) for node, front in fronts.items()}
    return Commands(argv, reach.node_timeout_s, reach.python, None if hosts else targets.missing)


def open_engine(name: str, reach: ClusterReach) -> Engine:
    """Raises UsageError."""
    return _ENGINES[name](reach)


def _open_ray(reach: ClusterReach) -> Engine:
    try:
        from forkpoint.gather.ray import open_ray  # noqa: PLC0415 - large, and not everybody has it
    except ModuleNotFoundError as error:
        raise UsageError("--cluster ray needs Ray: pip install 'forkpoint[cluster]'") from error
    return open_ray(reach.address, reach.node_timeout_s)


def _open_monarch(reach: ClusterReach) -> Engine:
    try:
        from forkpoint.gather.monarch import open_monarch  # noqa: PLC0415 - large, and not everybody has it
    except ModuleNotFoundError as error:
        raise UsageError("--cluster monarch needs Monarch: pip install 'forkpoint[monarch]'") from error
    return open_monarch(reach.hosts, reach.node_timeout_s)


_ENGINES: dict[str, Callable[[ClusterReach], Engine]] = {
    "ray": _open_ray,
    "monarch": _open_monarch,
    "ssh": open_ssh,
    "slurm": open_slurm,
}
