"""Engines that start a program on each node through one of the site's tools, and read what it prints.

Two fixed scripts are run there. What a user names (paths, a Python, a node) reaches them as lines of their standard
input, so that nothing of it is taken for a command.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from math import ceil

from forkpoint.cluster.engine import Answers, NodeAnswer, slow, without_forkpoint
from forkpoint.collect.call import Failed, running
from forkpoint.ingest import Progress
from forkpoint.ingest.files import SUMMARY
from forkpoint.ingest.flight_recorder import MAX_BYTES

AT_ONCE = 32
"""Each is a process here that mostly waits."""
_MAX_SUMMARY = 256 << 20
"""A node with 1,000 ranks and all of their logs stays far below."""
_MAX_GREETING = 1 << 16
"""What the shell's start-up files of a node may print before the summary."""
_NO_MODULE = ("No module named forkpoint", "exit code 127")

_SUMMARISE = (
    "IFS= read -r python; IFS= read -r seconds; IFS= read -r node; "
    "set --; while IFS= read -r path; do "
    'case $path in "~/"*) path=$HOME/${path#??} ;; esac; '
    'set -- "$@" "$path"; done; '
    # What nobody waits for any more must not stay on the node.
    'limit=; command -v timeout >/dev/null && limit="timeout $seconds"; '
    'exec $limit "$python" -m forkpoint summarise --output - --origin "$node" -- "$@"'
)
_READ = f'IFS= read -r path; exec head -c {MAX_BYTES + 1} "$path"'


@dataclass(frozen=True, slots=True)
class Commands:
    """Nodes that are reached by argument lists."""

    argv: Mapping[str, Callable[[str], tuple[str, ...]]]
    """Node -> what runs a script of sh there."""
    node_timeout_s: float
    python: str = "python3"

    def summarise(self, paths: Sequence[str], progress: Progress | None) -> Answers:
        nodes = list(self.argv)
        answers: dict[str, NodeAnswer] = {}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done in as_completed([pool.submit(self._ask, node, paths) for node in nodes]):
                answer = done.result()
                answers[answer.node] = answer
                if progress:
                    progress(len(answers), len(nodes), answer.node)
        return Answers(tuple(answers[node] for node in nodes))

    def read_file(self, node: str, path: str) -> bytes | Failed:
        with running(self.argv[node](_READ), f"{path}\n".encode(), self.node_timeout_s) as tool:
            data = tool.answer.read(MAX_BYTES + 1) if tool.failed is None else b""
        if tool.failed:
            return tool.failed
        return Failed("is larger than a dump may be") if len(data) > MAX_BYTES else data

    def close(self) -> None:
        """Nothing stays open between two questions."""

    def _ask(self, node: str, paths: Sequence[str]) -> NodeAnswer:
        began = time.monotonic()
        lines = (self.python, str(ceil(self.node_timeout_s)), node, *paths)
        question = "".join(f"{line}\n" for line in lines).encode()
        with running(self.argv[node](_SUMMARISE), question, self.node_timeout_s) as tool:
            answer = tool.answer.read(_MAX_SUMMARY) if tool.failed is None else b""
        seconds = time.monotonic() - began
        if tool.failed:
            return NodeAnswer(node, None, self._why(node, tool.failed.why), seconds)
        at = answer[:_MAX_GREETING].find(SUMMARY)
        return NodeAnswer(node, answer[max(0, at) :], None, seconds)

    def _why(self, node: str, why: str) -> str:
        if "not done after" in why:
            return slow(node, self.node_timeout_s)
        if any(sign in why for sign in _NO_MODULE):
            return f"{without_forkpoint(node)}; --node-python names another ({why})"
        return why
