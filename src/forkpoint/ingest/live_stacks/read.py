"""A file of live stacks, in whichever format."""

from collections.abc import Sequence

from forkpoint.ingest.live_stacks import debug_server, faulthandler_text, gdb_text, py_spy_json, py_spy_text
from forkpoint.ingest.live_stacks.threads import RankStacks, Thread
from forkpoint.ingest.text import without_escapes

FORMATS = (faulthandler_text, py_spy_text, gdb_text)
_WITH_PREAMBLE = (faulthandler_text, py_spy_text, debug_server)
LINE_LIMIT = 8000
"""A line is cut there: gdb prints C++ names of some thousand characters."""


def looks_like_stacks(head: str) -> bool:
    """The file begins with a stack, after at most what the format's tool prints first. A log with stacks in its middle
    is still a log.
    """
    if py_spy_json.looks_like_json(head):
        return True
    talks = False
    for line in _lines(head):
        if any(form.begins_stacks(line) for form in FORMATS):
            return True
        talks = talks or gdb_text.begins_talk(line)
        if line.strip() and not talks and not any(form.is_preamble(line) for form in _WITH_PREAMBLE):
            return False
    return False


def read_live_stacks(text: str, file: str, rank: int | None) -> tuple[RankStacks, ...]:
    """All threads in the text. `rank` is whose file it is; a debug server's file says itself whose each block is."""
    threads = py_spy_json.read_threads(text) if py_spy_json.looks_like_json(text) else []
    if threads:
        return _of_rank(rank, file, threads)
    if not any(mark in text for form in FORMATS for mark in form.MARKS):
        return ()
    return read_lines(_lines(text), file, rank)


def read_lines(lines: Sequence[str], file: str, rank: int | None) -> tuple[RankStacks, ...]:
    """All threads in lines that follow each other."""
    blocks = debug_server.split_blocks(lines)
    if not blocks:
        return _of_rank(rank, file, _read_threads(lines, 1))
    found = [_of_rank(owner, file, _read_threads(block, first)) for owner, first, block in blocks]
    return tuple(stacks for ranks in found for stacks in ranks)


def _of_rank(rank: int | None, file: str, threads: Sequence[Thread]) -> tuple[RankStacks, ...]:
    """Nothing for a rank of which no frame is known."""
    if not any(thread.stack for thread in threads):
        return ()
    return (RankStacks(rank, file, tuple(threads)),)


def _read_threads(lines: Sequence[str], first: int) -> list[Thread]:
    found = [thread for form in FORMATS for thread in form.read_threads(lines, first)]
    return sorted(found, key=lambda thread: thread.line)


def _lines(text: str) -> list[str]:
    return [line[:LINE_LIMIT].rstrip("\r") for line in without_escapes(text).split("\n")]
