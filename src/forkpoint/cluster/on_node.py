"""Runs on a node, for engines that run Python there."""

import time
from collections.abc import Sequence
from pathlib import Path

from forkpoint.cluster.engines import NodeAnswer
from forkpoint.collect.call import CallFailed
from forkpoint.errors import ForkpointError
from forkpoint.ingest.flight_recorder import MAX_BYTES
from forkpoint.ingest.summary_file import summarise


def summarise_here(paths: Sequence[str], node: str) -> NodeAnswer:
    """The summary of this node's files, which get its name."""
    began = time.monotonic()
    try:
        summary, problem = summarise([str(Path(path).expanduser()) for path in paths], node), None
    except ForkpointError as error:
        summary, problem = None, str(error)
    return NodeAnswer(node, summary, problem, time.monotonic() - began)


def read_here(path: str) -> bytes | CallFailed:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return CallFailed(f"cannot be read ({error.strerror})")
    return CallFailed("is larger than a dump may be") if len(data) > MAX_BYTES else data
