"""Finds the lines of a log that contain a searched string: with numpy, or with ripgrep on large files if it is installed.

The numpy search treats the log as consecutive four-byte words. Wherever a literal starts, it contains some whole words; so
for each of the four possible alignments, up to four consecutive words are known. A table indexed by the hash of the first
word leaves a few percent of all positions, and one by the hash of all of them almost none. Those are then compared with the
literals themselves.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from forkpoint.evidence.logs.patterns import anchors, scan_literals
from forkpoint.evidence.stacks.read import MARKS

SHORTEST_LITERAL = 6
"""A shorter literal could have fewer than three bytes in every word."""

_BLOCK = 1 << 16
_WORD = 4
_WORDS_AT_MOST = 4
_FIRST, _ALL = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77)
_SHIFT = np.uint32(16)
_COMMON = b" etaoinsrhldcu"
_LEVELS = re.compile(rb"INFO|WARN|ERROR")
"""Log levels occur in every line, so their letters count as common."""


@cache
def literals_by_anchor() -> tuple[tuple[bytes, tuple[bytes, ...]], ...]:
    """The searched strings, each under an anchor that it contains."""
    groups: dict[bytes, list[bytes]] = {anchor: [] for anchor in anchors()}
    for literal in scan_literals():
        groups[next(anchor for anchor in anchors() if anchor in literal)].append(literal)
    return tuple((anchor, tuple(literals)) for anchor, literals in groups.items())


def is_hit(line: bytes) -> bool:
    """Whether a line contains a searched string."""
    for anchor, literals in literals_by_anchor():
        if anchor in line:
            for literal in literals:
                if literal in line:
                    return True
    return False


class _Tables(Struct, frozen=True):
    first: npt.NDArray[np.bool_]
    """Indexed by the hash of a word: whether it is the first word of some literal."""
    whole: npt.NDArray[np.bool_]
    """Indexed by the hash of all words of a literal."""
    literals: dict[bytes, tuple[tuple[int, bytes], ...]]
    """By first word: (offset of the word in the literal, literal)."""


class LineFinder:
    """Finds lines with numpy, in blocks that fit in the processor's cache."""

    def __init__(self) -> None:
        self._tables = _tables()
        self._mixed = np.empty(_BLOCK // _WORD, dtype=np.uint32)
        self._index = np.empty(_BLOCK // _WORD, dtype=np.intp)
        self._flags = np.empty(_BLOCK, dtype=bool)

    def hits(self, chunk: bytes) -> tuple[int, list[int]]:
        """The number of newlines in the chunk, and the indexes of lines with a searched string or the mark of a stack."""
        hits: list[int] = []
        counted = number = line_end = 0
        for place in self._likely_places(chunk):
            if place >= line_end and _is_literal(chunk, place, self._tables):
                number += chunk.count(b"\n", counted, place)
                counted = place
                line_end = chunk.find(b"\n", place) % (len(chunk) + 1)
                hits.append(number)
        return self.count_newlines(chunk), hits

    def count_newlines(self, chunk: bytes | memoryview) -> int:
        data = np.frombuffer(chunk, dtype=np.uint8)
        count = 0
        for start in range(0, len(data), _BLOCK):
            block = data[start : start + _BLOCK]
            count += int(np.count_nonzero(np.equal(block, ord("\n"), out=self._flags[: len(block)])))
        return count

    def _likely_places(self, chunk: bytes) -> list[int]:
        words = np.frombuffer(chunk, dtype="<u4", count=len(chunk) // _WORD)
        size = _BLOCK // _WORD
        found = np.concatenate([self._begun(words[at : at + size]) + at for at in range(0, len(words) or 1, size)])
        # No literal repeats a word, so a page of zeros can be skipped.
        repeats = words[found] == words.take(found + 1, mode="clip")
        found = found[~repeats | (found + 1 == len(words))]
        if not found.size:
            return []
        mixed = words[found] * _ALL
        known = self._tables.whole[mixed >> _SHIFT]
        for after in range(1, _WORDS_AT_MOST):
            mixed = (mixed ^ words.take(found + after, mode="clip")) * _ALL
            known |= self._tables.whole[mixed >> _SHIFT]
        return (found[known] * _WORD).tolist()

    def _begun(self, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.intp]:
        """Positions of words that may begin a literal."""
        mixed, index = self._mixed[: len(words)], self._index[: len(words)]
        np.multiply(words, _FIRST, out=mixed)
        np.right_shift(mixed, _SHIFT, out=index)
        return np.flatnonzero(self._tables.first.take(index, out=self._flags[: len(words)], mode="clip"))


def _is_literal(chunk: bytes, place: int, tables: _Tables) -> bool:
    """Whether a literal that contains this word is at this place."""
    for at, literal in tables.literals.get(chunk[place : place + _WORD], ()):
        if place >= at and chunk.startswith(literal, place - at):
            return True
    return False


@cache
def _tables() -> _Tables:
    first = np.zeros(1 << 16, dtype=bool)
    whole = np.zeros(1 << 16, dtype=bool)
    literals: dict[bytes, list[tuple[int, bytes]]] = {}
    for literal in {*scan_literals(), *MARKS}:
        assert len(literal) >= SHORTEST_LITERAL, literal
        for at, known_by in _ways(literal):
            words = np.frombuffer(known_by, dtype="<u4")
            first[words[:1] * _FIRST >> _SHIFT] = True
            mixed = words[:1] * _ALL
            for word in words[1:]:
                mixed = (mixed ^ word) * _ALL
            whole[mixed >> _SHIFT] = True
            literals.setdefault(known_by[:_WORD], []).append((at, literal))
    return _Tables(first, whole, {word: tuple(held) for word, held in literals.items()})


def _ways(literal: bytes) -> Iterator[tuple[int, bytes]]:
    """For each alignment: the offset in the literal at which its known words begin, and those words."""
    fewest = 2 if len(literal) >= 3 * _WORD - 1 else 1
    shown = _LEVELS.sub(lambda level: b" " * len(level[0]), literal)
    for way in range(_WORD):
        places = range(way, len(literal) - fewest * _WORD + 1, _WORD)
        if places:
            at = min(places, key=lambda place: sum(byte in _COMMON for byte in shown[place : place + _WORD]))
            count = min(_WORDS_AT_MOST, (len(literal) - at) // _WORD)
            yield at, literal[at : at + count * _WORD]
        else:  # only three bytes of the word belong to the literal: all values of the fourth
            yield from ((way, literal[way:] + bytes([byte])) for byte in range(256))


# ------------------------------------------------------------------------------------------------------------ ripgrep

# Several times as fast. It gets the literals as arguments and the log as standard input; nothing from a log or its name
# reaches a command line. It only says where to look; its hits are still matched here.

WORTH_IT = 1 << 25
"""File size from which starting a process pays off."""
_MEMORY = 1 << 27
_MANY, _SPARSE = 20_000, 2_000
"""After 20,000 hits, more than one per 2000 bytes is too many: handling each costs more than the search saves."""
_OPTIONS = (
    "--no-config", "--no-messages", "--fixed-strings", "--case-sensitive", "--text", "--encoding=none", "--no-mmap",
    "--byte-offset", "--line-number", "--no-filename", "--no-heading", "--color=never", "--threads=1",
    "--max-columns=1",  # only the position of a line, not its text, which may be long
)  # fmt: skip


class RipgrepFailed(Exception):
    """It ended with an error, or found too many lines: the log is read without it."""


@cache
def ripgrep() -> str | None:
    return shutil.which("rg")


def reopened(stream: BinaryIO) -> int | None:
    """A new descriptor for a large regular file; None for anything else."""
    name = getattr(stream, "name", None)
    if not isinstance(name, str) or not hasattr(stream, "fileno"):
        return None
    try:
        ours = os.fstat(stream.fileno())
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    theirs = os.fstat(descriptor)
    same = (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)
    if same and stat.S_ISREG(theirs.st_mode) and theirs.st_size >= WORTH_IT:
        return descriptor
    os.close(descriptor)
    return None


class Ripgrep:
    """A search that runs while the log is read for other things. Returns lines with anchors or marks of stacks: candidates."""

    def __init__(self, program: str, descriptor: int) -> None:
        wanted = [argument for text in (*anchors(), *MARKS) for argument in ("-e", text.decode())]
        self._process = subprocess.Popen(  # noqa: S603 - fixed arguments; the log is its input only
            [program, *_OPTIONS, *wanted, "-"],
            stdin=descriptor,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        _limit_memory(self._process.pid)

    def lines(self) -> Iterator[tuple[int, int]]:
        """(number, offset) of each line found."""
        assert self._process.stdout is not None
        for count, answer in enumerate(self._process.stdout):
            number, _, rest = answer.partition(b":")
            offset = rest.partition(b":")[0]
            if not (number.isdigit() and offset.isdigit()):
                raise RipgrepFailed
            if count > _MANY and int(offset) < count * _SPARSE:
                raise RipgrepFailed
            yield int(number), int(offset)
        if self._process.wait() not in {0, 1}:
            raise RipgrepFailed

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()


def _limit_memory(pid: int) -> None:
    """Limits ripgrep, which holds the longest line in memory; a log may be a single line."""
    if sys.platform == "linux":
        import resource  # noqa: PLC0415 - not on every system

        resource.prlimit(pid, resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
