"""Cuts a log into pieces that can be redacted separately: no secret or name spans two pieces."""

import io
import re
from collections.abc import Iterator
from typing import BinaryIO

from forkpoint.collect.bundle.environment import may_list

PIECE = 4 << 20
_KEY_AT_MOST = 1 << 16
"""Bytes of a private key in a log."""
_LISTING_AT_MOST = 500
_SPACE = re.compile(rb"[\s,;]")
_ENDLESS = b"[masked-endless-line]\n"


def pieces(stream: BinaryIO, size: int = PIECE) -> Iterator[bytes]:
    """Whole lines. A line that is longer is cut where words end; where it has none, it is left out: half a secret could
    stand at either end of a cut.
    """
    source = io.BufferedReader(stream, size) if isinstance(stream, io.RawIOBase) else stream
    rest = b""
    while data := source.read(size):
        data = rest + data
        end = _end(data)
        if end is None and len(data) >= size:
            yield _ENDLESS
            rest = _after_line(source)
            continue
        yield data[:end]
        rest = data[end:] if end is not None else b""
    if rest:
        yield rest


def _end(data: bytes) -> int | None:
    """Behind the last line that can be cut from the next. None: nowhere."""
    end = data.rfind(b"\n") + 1
    if not end:
        words = [match.end() for match in _SPACE.finditer(data, max(0, len(data) - _KEY_AT_MOST))]
        return words[-1] if words else None
    return _before_key(data, end) or _before_listing(data, end) or end


def _before_key(data: bytes, end: int) -> int | None:
    """The line in which a private key begins that does not end here."""
    begun = data.rfind(b"-----BEGIN ", max(0, end - _KEY_AT_MOST), end)
    if begun < 0 or data.find(b"-----END ", begun, end) >= 0:
        return None
    return data.rfind(b"\n", 0, begun) + 1


def _before_listing(data: bytes, end: int) -> int | None:
    """The first of the variables that a piece would end with."""
    for _ in range(_LISTING_AT_MOST):
        start = data.rfind(b"\n", 0, end - 1) + 1
        if not start or not may_list(data[start : end - 1]):
            return end
        end = start
    return None


def _after_line(source: BinaryIO) -> bytes:
    """What follows the line that is being read."""
    while data := source.read(PIECE):
        place = data.find(b"\n") + 1
        if place:
            return data[place:]
    return b""
