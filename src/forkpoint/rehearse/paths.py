"""The lines that two ranks of a trial executed, and where the disturbed one first went another way.

The disturbed rank and one that was left alone write the user's lines they come by to a file that outlives them. Both run
the same program: what follows the n-th time they come by the line of the disturbance can be compared line by line.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ENTRY: Final = struct.Struct("<II")
"""Number of the file, line. The first entry holds how many follow."""
_MARK: Final = (0xFFFFFFFF, 0)
_MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class SeenFork:
    """Where the disturbed rank went another way than the one it is compared with."""

    file: str
    line: int
    went_to: int
    """The line it executed next; of the same file, or 0."""
    other: int
    """The rank it is compared with."""
    other_went_to: int


class PathFile:
    """In a rank."""

    def __init__(self, folder: str, rank: int) -> None:
        self._names = Path(folder) / f"path_rank_{rank}.names"
        path = Path(folder) / f"path_rank_{rank}"
        size = _ENTRY.size * (_MOST + 1)
        with path.open("w+b") as file:
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        self._count = 0
        self._files: dict[str, int] = {}

    def number_of(self, file: str) -> int:
        if file not in self._files:
            self._files[file] = len(self._files)
            self._names.write_text("\n".join(self._files), encoding="utf-8")
        return self._files[file]

    def add(self, number: int, line: int) -> None:
        if self._count < _MOST:
            self._count += 1
            _ENTRY.pack_into(self._map, self._count * _ENTRY.size, number, line)
            _ENTRY.pack_into(self._map, 0, self._count, 0)

    def mark(self) -> None:
        """Here the perturbation had its effect."""
        self.add(*_MARK)


def find_fork(folder: Path, rank: int, other: int, at_line: tuple[str, int] | None = None) -> SeenFork | None:
    """`at_line`: where the perturbation had its effect. None: both went the same way as far as is known, or it is not known."""
    names, mine = _read(folder, rank)
    their_names, theirs = _read(folder, other)
    if _MARK not in mine or len(mine) < 2 or not theirs:
        return None
    at = mine.index(_MARK)
    lines = [(names[n], line) for n, line in mine if (n, line) != _MARK]
    their_lines = [(their_names[n], line) for n, line in theirs if (n, line) != _MARK]
    before = lines[:at]
    if at_line in before:  # what came after it on this rank may be the loader's doing
        before = before[: len(before) - before[::-1].index(at_line)]
    known = set(their_lines)
    while before and before[-1] not in known:  # a handler of a signal, which the other never got
        before = before[:-1]
    begin = _same_place(before, their_lines)
    if begin is None:
        return None
    between = set(lines[len(before) : at])
    while begin < len(their_lines) and their_lines[begin] in between:
        begin += 1
    last = before[-1] if before else lines[0]
    for here, there in zip(lines[at:], their_lines[begin:], strict=False):
        if here != there:
            in_file = [entry[1] if entry[0] == last[0] else 0 for entry in (here, there)]
            return SeenFork(last[0], last[1], in_file[0], other, in_file[1])
        last = here
    return None


def _same_place(before: list[tuple[str, int]], theirs: list[tuple[str, int]]) -> int | None:
    """Where the other rank has come by the last line of these as often; None: it never has."""
    if not before:  # disturbed from the beginning
        return 0
    seen = before.count(before[-1])
    places = [place for place, entry in enumerate(theirs) if entry == before[-1]]
    return places[seen - 1] + 1 if len(places) >= seen else None


def _read(folder: Path, rank: int) -> tuple[list[str], list[tuple[int, int]]]:
    try:
        data = (folder / f"path_rank_{rank}").read_bytes()
        names = (folder / f"path_rank_{rank}.names").read_text(encoding="utf-8").split("\n")
    except OSError:
        return [], []
    count = _ENTRY.unpack_from(data, 0)[0]
    return names, [*_ENTRY.iter_unpack(data[_ENTRY.size : _ENTRY.size * (count + 1)])]
