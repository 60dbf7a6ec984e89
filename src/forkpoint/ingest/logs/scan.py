"""Which lines of a log are worth a regular expression: fast, without judging them.

Big logs repeat themselves. Without digits, blanks and signs most lines are among a few hundred texts, so each chunk is
reduced to those, and only texts not met before are looked at. A log that does not repeat itself (samples of generated
text) is searched as a whole for a few short strings instead. Both find the same lines.
"""

from collections.abc import Iterator
from functools import cache
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from forkpoint.ingest.logs.patterns import anchors, scan_literals

CHUNK = 1 << 18
LONGEST = 1 << 22
"""A line longer than this is read in pieces."""

_SIGNS = b"0123456789.:-+,%[]<>=/|#()*'\"`! \t\r" + bytes([0xE2, 0x96, *range(0x88, 0x90)])
"""What changes from line to line: digits, signs, and what progress bars are drawn with."""
_KEPT_AT_MOST = 1 << 24
_BLOCK = 1 << 19
_DIRECT_FOR = 15
_FEW = 400


def read_chunks(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """The stream in pieces that end where lines end."""
    while chunk := stream.read(size):
        yield chunk if chunk.endswith(b"\n") else chunk + stream.readline(LONGEST)


def split_lines(chunk: bytes) -> list[bytes]:
    """The lines of a chunk, without an empty one after the last newline."""
    lines = chunk.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def reduced(text: bytes) -> bytes:
    """The text without what changes from line to line."""
    return text.translate(None, _SIGNS)


@cache
def literals_by_anchor() -> tuple[tuple[bytes, tuple[bytes, ...]], ...]:
    """What a log is searched for, each under an anchor that it contains."""
    groups: dict[bytes, list[bytes]] = {anchor: [] for anchor in anchors()}
    for literal in scan_literals():
        groups[next(anchor for anchor in anchors() if anchor in literal)].append(literal)
    return tuple((anchor, tuple(literals)) for anchor, literals in groups.items())


def is_hit(line: bytes) -> bool:
    """Whether a line contains what a log is searched for."""
    for anchor, literals in literals_by_anchor():
        if anchor in line:
            for literal in literals:
                if literal in line:
                    return True
    return False


class TextFinder:
    """Finds lines with the standard library and numpy."""

    def __init__(self) -> None:
        self._cold: set[bytes] = set()
        """Texts of lines that contain nothing."""
        self._hot: set[bytes] = set()
        """Texts of lines that may contain something."""
        self._kept = 0
        self._direct = 0

    def hits(self, chunk: bytes) -> tuple[int, list[int]]:
        """How many newlines the chunk has, and which of its lines are hits."""
        lines = [] if self._direct else _texts(chunk).split(b"\n")
        likely = self._likely(lines) if lines else None
        if likely is None:
            self._direct = (self._direct or _DIRECT_FOR) - 1
            likely = _anchored_lines(reduced(chunk))
        if likely:
            raw = chunk.split(b"\n")
            likely = [index for index in likely if is_hit(raw[index])]
        return (len(lines) - 1 if lines else chunk.count(b"\n")), likely

    def _likely(self, lines: list[bytes]) -> list[int] | None:
        """The lines that may be hits, by their texts. None: most of them were never met before."""
        if self._kept > _KEPT_AT_MOST:
            self._cold.clear()
            self._hot.clear()
            self._kept = 0
        texts = set(lines)
        new = texts.difference(self._cold, self._hot)
        if len(new) * 2 > len(lines) and len(new) > _FEW:
            return None
        if new:
            self._learn(new)
        hot = texts & self._hot
        return [index for index, line in enumerate(lines) if line in hot] if hot else []

    def _learn(self, texts: set[bytes]) -> None:
        joined = b"\n".join(texts)
        self._kept += len(joined) + 100 * len(texts)
        found = [literal for literal in _text_literals() if literal in joined]
        hot = {text for text in texts if any(literal in text for literal in found)} if found else set[bytes]()
        self._hot |= hot
        self._cold |= texts - hot


def _texts(chunk: bytes) -> bytes:
    """The lines without what changes from one to the next, hashes included."""
    return chunk.translate(None, _SIGNS + b"abcdef")


@cache
def _text_literals() -> tuple[bytes, ...]:
    return tuple(sorted({_texts(literal) for literal in scan_literals()}))


@cache
def _windows() -> tuple[bytes, ...]:
    """The first four letters of each anchor."""
    return tuple(sorted({reduced(anchor)[:4] for anchor in anchors()}))


def _anchored_lines(text: bytes) -> list[int]:
    """Indices of the lines of a reduced text that contain an anchor's letters. Four bytes compare like one number."""
    values = [np.uint32(int.from_bytes(window, "little")) for window in _windows()]
    flags = np.empty(_BLOCK // 4, dtype=bool)
    places: list[npt.NDArray[np.intp]] = []
    for start in range(0, len(text), _BLOCK):
        for offset in range(start, start + 4):
            count = min(_BLOCK, len(text) - offset) // 4
            if count <= 0:
                break
            words = np.frombuffer(text, dtype="<u4", count=count, offset=offset)
            here = flags[:count]
            for value in values:
                np.equal(words, value, out=here)
                if here.any():
                    places.append(np.flatnonzero(here) * 4 + offset)
    if not places:
        return []
    newlines = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n"))
    return np.unique(np.searchsorted(newlines, np.concatenate(places))).tolist()
