"""Paths and lists of ranks, shortened to a width."""

from collections.abc import Sequence

from rich.cells import cell_len

from forkpoint.model.world import format_ranks
from forkpoint.report.escape import escape

_MIN_PATH_WIDTH = 20


def short_path(path: str, width: int) -> str:
    """The end of a path, which says more than its beginning; cut between folders if possible."""
    room = max(width, _MIN_PATH_WIDTH)
    end = escape(path[-4 * room :])
    if len(path) <= 4 * room and cell_len(end) <= room:
        return end
    while cell_len(end) > room - 4:
        _, slash, rest = end.partition("/")
        end = rest if slash else end[1:]
    return f".../{end}"


def short_ranks(ranks: Sequence[int], width: int) -> str:
    for max_ranges in (None, 6, 4, 2):
        text = format_ranks(ranks, max_ranges)
        if len(text) <= width:
            return text
    return format_ranks(ranks, 1)
