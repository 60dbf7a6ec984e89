"""What a rank of a trial writes while it runs, in files that survive it: the lines it executed and its number of steps.

The disturbed rank and an undisturbed one record each executed line of the user's code. Both run the same program, so what follows the
n-th pass of the disturbed line can be compared line by line, up to the place where the disturbed rank first took another path.
"""

import mmap
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

_ENTRY: Final = struct.Struct("<III")
"""File number, line, and what a loop gave to its body there (0: nothing). The first entry has the number of entries."""
_MARK: Final = (0xFFFFFFFF, 0)
_MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class SeenFork:
    """Where the disturbed rank took another path than the rank it is compared with."""

    file: str
    line: int
    went_to: int
    """The line it executed next; 0 if in another file."""
    other: int
    """The rank it is compared with."""
    other_went_to: int


class PathFile:
    """Written by a rank."""

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

    def add(self, number: int, line: int, item: int = 0) -> None:
        if self._count < _MOST:
            self._count += 1
            _ENTRY.pack_into(self._map, self._count * _ENTRY.size, number, line, item)
            _ENTRY.pack_into(self._map, 0, self._count, 0, 0)

    def mark(self) -> None:
        """Marks where the perturbation took effect."""
        self.add(*_MARK)


Line = tuple[str, int]
"""File and line."""
LineItem = tuple[Line, int]
"""The first line of a loop's body, and a number for what the loop gave to it."""


class Quiet(Protocol):
    """Questions about the source that decide where a fork is told."""

    def leaves(self, line: Line) -> tuple[str, range] | None:
        """Name and lines of the function there, if nothing in it communicates."""
        ...

    def calls(self, line: Line, name: str) -> range | None:
        """The lines of the function there, if the line calls a function of this name."""
        ...


@dataclass(frozen=True, slots=True)
class _Courses:
    """What two ranks executed before and after one of them was disturbed."""

    before: list[Line]
    mine: list[Line]
    theirs: list[Line]

    def part(self) -> int | None:
        """Index of the first different line."""
        pairs = enumerate(zip(self.mine, self.theirs, strict=False))
        return next((at for at, (here, there) in pairs if here != there), None)


def find_fork(
    folder: Path, rank: int, other: int, at_line: Line | None = None, quiet: Quiet | None = None
) -> SeenFork | None:
    """`at_line`: where the perturbation took effect. `quiet`: a fork inside a function that does not communicate only makes it
    return something else; then the fork is where its caller decides. None: both took the same path as far as recorded, or it is
    unknown.
    """
    courses = _read_courses(folder, rank, other, at_line)
    at = courses.part() if courses is not None else None
    if courses is None or at is None:
        return None
    while quiet is not None and (caller := _returned(courses, at, quiet)) is not None:
        courses, at = caller
    return _fork_at(courses, at, other)


def _fork_at(courses: _Courses, at: int, other: int) -> SeenFork:
    last = [*courses.before[-1:], *courses.mine[:at]][-1:] or courses.mine[:1]
    return _fork_from(last[0], courses.mine[at], courses.theirs[at], other)


def _fork_from(line: Line, mine: Line, theirs: Line, other: int) -> SeenFork:
    went = [after[1] if after[0] == line[0] else 0 for after in (mine, theirs)]
    return SeenFork(*line, went[0], other, went[1])


def _returned(courses: _Courses, at: int, quiet: Quiet) -> tuple[_Courses, int] | None:
    """Both ranks from where the function in which they part has returned, and where they part in its caller. None: it communicates,
    it did not return, or its caller does the same on both.
    """
    history = [*courses.before, *courses.mine[:at]]
    inside = quiet.leaves(history[-1]) if history else None
    if inside is None:
        return None
    caller, lines = _find_call(history, inside, quiet)
    rest = [_from(lines, path[at:], history[caller][0]) for path in (courses.mine, courses.theirs)]
    if not all(rest):
        return None
    after = _Courses(history[: caller + 1], rest[0], rest[1])
    again = after.part()
    decides = again is not None and (again == 0 or after.mine[again - 1][1] in lines)
    return (after, again) if again is not None and decides else None


def _find_call(history: list[Line], inside: tuple[str, range], quiet: Quiet) -> tuple[int, range]:
    """Index of the line that called the function, and the lines of the caller; those are empty if it is unknown."""
    name, own = inside
    file = history[-1][0]
    for at in range(len(history) - 1, -1, -1):
        if history[at][0] == file and history[at][1] in own:
            continue
        lines = quiet.calls(history[at], name)
        if lines is not None:
            return at, lines
    return -1, range(0)


def _from(lines: range, path: list[Line], file: str) -> list[Line]:
    at = next((n for n, (name, line) in enumerate(path) if name == file and line in lines), None)
    return path[at:] if at is not None else []


def _read_courses(folder: Path, rank: int, other: int, at_line: Line | None) -> _Courses | None:
    names, mine = _read(folder, rank)
    their_names, theirs = _read(folder, other)
    if _MARK not in mine or len(mine) < 2 or not theirs:
        return None
    at = mine.index(_MARK)
    lines = [(names[n], line) for n, line in mine if (n, line) != _MARK]
    their_lines = [(their_names[n], line) for n, line in theirs if (n, line) != _MARK]
    before = lines[:at]
    if at_line in before:  # lines after it may come from the loader
        before = before[: len(before) - before[::-1].index(at_line)]
    known = set(their_lines)
    while before and before[-1] not in known:  # a signal handler, which the other rank never ran
        before = before[:-1]
    begin = _same_place(before, their_lines)
    if begin is None:
        return None
    between = set(lines[len(before) : at])
    while begin < len(their_lines) and their_lines[begin] in between:
        begin += 1
    return _Courses(before, lines[at:], their_lines[begin:])


def find_step(folder: Path, rank: int, other: int, at_line: tuple[str, int] | None) -> SeenFork | None:
    """From the line at which a rank was disturbed to the next one that it executed, if that is in the same file."""
    names, mine = _read(folder, rank)
    if at_line is None or _MARK not in mine:
        return None
    after = mine[mine.index(_MARK) + 1 :][:1]
    return SeenFork(*at_line, after[0][1], other, 0) if after and names[after[0][0]] == at_line[0] else None


def find_ways(folder: Path, rank: int, other: int, at_line: Line | None, line: Line) -> SeenFork | None:
    """The first pass of `line`, after the perturbation took effect, from which the two ranks went on to different lines."""
    courses = _read_courses(folder, rank, other, at_line)
    if courses is None:
        return None
    mine, theirs = (
        [after for here, after in pairwise(path) if here == line] for path in (courses.mine, courses.theirs)
    )
    ways = next((pair for pair in zip(mine, theirs, strict=False) if pair[0] != pair[1]), None)
    return None if ways is None else _fork_from(line, *ways, other)


def last_line(folder: Path, rank: int) -> Line | None:
    """The line at which a rank stopped. None: unknown."""
    names, lines = _read(folder, rank)
    return next(((names[n], line) for n, line in reversed(lines) if (n, line) != _MARK), None)


def _same_place(before: list[tuple[str, int]], theirs: list[tuple[str, int]]) -> int | None:
    """The position after the other rank has passed the last line as often; None if it never has."""
    if not before:  # disturbed from the beginning
        return 0
    seen = before.count(before[-1])
    places = [place for place, entry in enumerate(theirs) if entry == before[-1]]
    return places[seen - 1] + 1 if len(places) >= seen else None


def read_items(folder: Path, rank: int) -> tuple[list[LineItem], list[LineItem]]:
    """Before and after the rank was disturbed; the second list is empty if it was not."""
    names, entries = _read_entries(folder, rank)
    marked = next((at for at, entry in enumerate(entries) if entry[:2] == _MARK), len(entries))
    before, after = (
        [((names[n], line), item) for n, line, item in part if item] for part in (entries[:marked], entries[marked:])
    )
    return before, after


def _read(folder: Path, rank: int) -> tuple[list[str], list[tuple[int, int]]]:
    names, entries = _read_entries(folder, rank)
    return names, [(number, line) for number, line, _ in entries]


def _read_entries(folder: Path, rank: int) -> tuple[list[str], list[tuple[int, int, int]]]:
    try:
        data = (folder / f"path_rank_{rank}").read_bytes()
        names = (folder / f"path_rank_{rank}.names").read_text(encoding="utf-8").split("\n")
    except OSError:
        return [], []
    count = _ENTRY.unpack_from(data, 0)[0]
    return names, [*_ENTRY.iter_unpack(data[_ENTRY.size : _ENTRY.size * (count + 1)])]


# ---------------------------------------------------------------------------------------------------------------------
# The number of steps, in a memory-mapped file of eight bytes that the parent process reads.


class StepFile:
    """Written by the rank."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._map: mmap.mmap | None = None
        self.steps = 0

    def open_for(self, rank: int) -> None:
        path = self._folder / f"steps_rank_{rank}"
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self.set(self.steps)

    def set(self, steps: int) -> None:
        self.steps = steps
        if self._map is not None:
            struct.pack_into("<q", self._map, 0, steps)


def read_steps(folder: Path, rank: int) -> int:
    """0 if the rank has made none yet."""
    try:
        return struct.unpack("<q", (folder / f"steps_rank_{rank}").read_bytes())[0]
    except (OSError, struct.error):
        return 0
