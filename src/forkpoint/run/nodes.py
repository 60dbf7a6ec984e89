"""Where ranks ran: without that no node can be left out."""

from pathlib import Path

from forkpoint.model.capture import Capture
from forkpoint.run.folders import ANYWHERE


def find_nodes(capture: Capture, attempt: Path) -> dict[int, str]:
    """NCCL's own word, else the node in whose folder their files lie. Two words that differ are none."""
    told: dict[int, set[str]] = {}
    for rank, file in _files(capture):
        node = _node_of(file, attempt)
        if node is not None:
            told.setdefault(rank, set()).add(node)
    said: dict[int, set[str]] = {}
    for place in capture.places:
        said.setdefault(place.rank, set()).add(place.host)
    return {rank: next(iter(nodes)) for rank, nodes in (told | said).items() if len(nodes) == 1}


def _files(capture: Capture) -> set[tuple[int, str]]:
    return {
        *((trace.rank, trace.file) for trace in capture.traces),
        *((rank, file) for file, rank in capture.logs if rank is not None),
        *((event.rank, event.file) for event in capture.events if event.rank is not None),
    }


def _node_of(file: str, attempt: Path) -> str | None:
    path = Path(file).absolute()
    if not path.is_relative_to(attempt):
        return None
    node = path.relative_to(attempt).parts[0]
    return None if node == ANYWHERE else node
