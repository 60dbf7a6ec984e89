"""What a worker process does: redact one piece and pack it. It knows all names that were given before it began.

A piece that needs a name which was not given yet comes back with it, unpacked; who hands out the pieces gives names in
the order of the evidence, so that the same evidence gets the same names with any number of workers.
"""

import zlib
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum, auto

from forkpoint.collect.bundle.dumps import redact_dump
from forkpoint.collect.bundle.lines import Lines
from forkpoint.errors import InputError
from forkpoint.redact import Redactor

_LEVEL = 1
"""Logs pack six to one at twice the speed of the default, which would pack them seven to one."""
_GZIP = 31

Name = tuple[str, str]
"""What it is, and the original."""


class Kind(StrEnum):
    TEXT = auto()
    DUMP = auto()


@dataclass(frozen=True, slots=True)
class Piece:
    kind: Kind
    name: str
    """For messages."""
    data: bytes
    names: tuple[tuple[Name, str], ...] = ()
    """Given since the workers began."""


@dataclass(frozen=True, slots=True)
class Packed:
    data: bytes
    """A whole gzip member."""
    size: int
    """Unpacked."""
    counts: Counter[str]


@dataclass(frozen=True, slots=True)
class Unnamed:
    """Needs names for these first."""

    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    why: str


Done = Packed | Unnamed | LeftOut


class Worker:
    def __init__(self, redactor: Redactor) -> None:
        self._names = redactor.names
        self._lines = Lines(redactor)
        self._redactor = redactor

    def do(self, piece: Piece) -> Done:
        given = self._names.given
        given.update(piece.names)
        known, before = len(given), Counter(self._names.counts)
        try:
            data = self._redact(piece)
        except InputError as error:
            return LeftOut(str(error).removeprefix(f"{piece.name}: "))
        if new := tuple(given)[known:]:
            for name in new:
                del given[name]
            return Unnamed(new)
        return Packed(pack(data), len(data), self._names.counts - before)

    def _redact(self, piece: Piece) -> bytes:
        if piece.kind is Kind.TEXT:
            return self._lines.redact(piece.data)
        return redact_dump(piece.data, piece.name, self._redactor.redact)


def pack(data: bytes) -> bytes:
    """As a gzip member: members one after the other are a gzip file, too."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return packer.compress(data) + packer.flush()


class _Here:
    """The worker of this process, set once when a pool starts it."""

    worker: Worker | None = None


def begin(redactor: Redactor) -> None:
    _Here.worker = Worker(redactor)


def do(piece: Piece) -> Done:
    assert _Here.worker is not None  # a pool calls `begin` first
    return _Here.worker.do(piece)
