"""Lines that the program itself printed, at the beginning and at the end of a log, by which ranks can be compared.

Lines of torch, NCCL and launchers are left out, and so are warnings and tracebacks with everything that belongs to them.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from forkpoint.evidence.logs.lines import ParsedLine, parse_line, split_glued
from forkpoint.evidence.text import clean
from forkpoint.model.log import PrintedLine

_FIRST, _LAST = 60, 120
"""Lines kept at the beginning and at the end of one rank's log."""
_OF_MANY = 8
"""Factor if several ranks share a log."""
_OF_LIBRARIES = re.compile(
    r"\[[IWEF]\d{3,4} \d\d:|^[IWE]\d{4} \d\d:| NCCL (?:INFO|WARN) |^NCCL version|\w+Warning: |^\s|^[*=-]{5}|^\[\d+\]:$"
)
_ERROR = re.compile(
    r"^Traceback|^terminate called|^Fatal Python error|^Exception raised from|^#\d|^frame #|Exception Group Traceback"
)
"""Starts an error of several lines."""
_AFTER_BAR = re.compile(r"(?<=it/s\])(?=[\d\[])|(?<=s/it\])(?=[\d\[])")
_TIMED = re.compile(r"^.{0,40}\d\d:\d\d(?::\d\d)?")


def keep_printed(
    numbered: Iterable[tuple[int, str]], rank_of: Callable[[ParsedLine], int | None], *, of_many: bool
) -> tuple[PrintedLine, ...]:
    """`rank_of`: who printed a line, by its prefix."""
    lines = list(_read(numbered, rank_of))
    times = _OF_MANY if of_many else 1
    head, tail = lines[: times * _FIRST], lines[times * _FIRST :]
    return (*head, *tail[-times * _LAST :])


def _unglued(text: str) -> list[str]:
    """A progress bar does not end its line, and what is printed next follows it."""
    return [piece for part in split_glued(text) for piece in _AFTER_BAR.split(part) if piece]


def _read(numbered: Iterable[tuple[int, str]], rank_of: Callable[[ParsedLine], int | None]) -> Iterator[PrintedLine]:
    in_error: set[int | None] = set()
    """Ranks inside a traceback: until their next line with a time."""
    for number, piece in ((number, piece) for number, text in numbered for piece in _unglued(text)):
        line = parse_line(piece)
        if not line.message.strip() or line.from_c10:
            continue
        rank = rank_of(line)
        if _ERROR.search(line.message):
            in_error.add(rank)
        elif not line.message[0].isspace() and _TIMED.match(line.message):
            in_error.discard(rank)
        if rank not in in_error and not _OF_LIBRARIES.search(line.message):
            yield PrintedLine(number, rank, clean(line.message), line.time)
