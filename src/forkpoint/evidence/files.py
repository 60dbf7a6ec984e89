"""Finds and opens the files at given paths, in an order that does not depend on the file system."""

import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from forkpoint.errors import UsageError
from forkpoint.evidence.links import leads_out, open_beneath, root_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

STDIN = "-"
SNIFF = 65536
"""Bytes at the start of a file from which its kind is detected."""
GZIP, ZSTD, XZ, ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"PK\x03\x04"
SUMMARY = b"\x89FPS\r\n\x1a\n"
"""Magic of a summary file (summary_file.py). Any conversion that treats the file as text would change its last bytes."""
_CACHE = ".cache"
_DUMP_NAME = "trace_rank"
_TAR_AT = 257
_URL = re.compile(r"[a-z][a-z0-9+.:-]{0,60}://")


def find_files(paths: Sequence[str], *, follow_links: bool = False) -> list[str]:
    """All files at these paths and below, each once, sorted. Left out: hidden files, except dumps in torch's default folder
    (`.cache/torch`); pipes that torch creates beside its dumps (nobody writes to them any more, so reading would block);
    and links that point outside their folder, unless `follow_links`.
    """
    found: dict[str, str] = {}
    for path in paths:
        if path == STDIN:
            found[STDIN] = STDIN
        elif is_url(path):
            from forkpoint.evidence.remote import list_files  # noqa: PLC0415 - only for URLs

            found.update((url, url) for url in list_files(path))
        elif os.path.isdir(path):
            found.update((one.real, one.path) for one in _walk(path) if follow_links or not one.leads_out_of(path))
        elif os.path.exists(path):  # also `<(kubectl logs ...)`, which is a pipe
            found[os.path.realpath(path)] = path
        else:
            raise UsageError(f"{path}: no such file or directory")
    return sorted(found.values())


def find_ways_out(paths: Sequence[str]) -> list[str]:
    """Links in these folders that point outside them."""
    folders = [path for path in paths if os.path.isdir(path)]
    return sorted(one.path for folder in folders for one in _walk(folder) if one.leads_out_of(folder))


def open_file(
    path: str, roots: Sequence[str] = (), count: Callable[[int], None] | None = None
) -> "io.BufferedReader[io.FileIO]":
    """Opens a local file or a URL. `roots`: folders that links must not leave. `count` is called with the number of bytes read
    from a local file. Raises OSError, and UsageError for a URL that no installed driver can read.
    """
    root = root_of(path, roots)
    if root is not None and not is_url(path):
        return io.BufferedReader(_counted(open_beneath(path, root), count), SNIFF)
    if is_url(path):
        from forkpoint.evidence.remote import open_url  # noqa: PLC0415 - only for URLs

        return open_url(path)
    if path == STDIN:
        return io.BufferedReader(cast("io.FileIO", sys.stdin.buffer), SNIFF)
    return io.BufferedReader(_counted(io.FileIO(path), count), SNIFF)


def _counted(file: io.FileIO, count: Callable[[int], None] | None) -> io.FileIO:
    if count is None:
        return file
    with file:
        return _CountedFile(os.dup(file.fileno()), count)


class _CountedFile(io.FileIO):
    """Reports how many bytes are read from it."""

    def __init__(self, descriptor: int, count: Callable[[int], None]) -> None:
        super().__init__(descriptor)
        self._count = count

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        size = super().readinto(buffer)
        self._count(size)
        return size

    def readall(self) -> bytes:
        data = super().readall()
        self._count(len(data))
        return data


def is_url(path: str) -> bool:
    """Whether fsspec has to read it."""
    return _URL.match(path) is not None


def shown(path: str) -> str:
    """The name in reports: URLs lose passwords, tokens and signatures."""
    if not is_url(path):
        return path
    from urllib.parse import urlsplit, urlunsplit  # noqa: PLC0415 - only for URLs

    parts = urlsplit(path)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def is_archive(head: bytes) -> bool:
    """Whether a file that starts with these bytes is an archive or compressed."""
    return head.startswith((GZIP, ZSTD, XZ, ZIP)) or is_tar(head)


def is_tar(head: bytes) -> bool:
    return head[_TAR_AT : _TAR_AT + 5] == b"ustar"


class _Found(NamedTuple):
    real: str
    """Without links in it."""
    path: str
    is_link: bool

    def leads_out_of(self, folder: str) -> bool:
        return self.is_link and leads_out(self.path, folder)


def _walk(folder: str) -> Iterator[_Found]:
    """Each file. There may be 100,000: the real path is resolved once for a folder, and only links cost a look at the file."""
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        real = os.path.realpath(here)
        hidden = f"/{_CACHE}/" in f"{here}/"
        for entry in _entries(here):
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") or entry.name == _CACHE:
                    waiting.append(entry.path)
            elif entry.name.startswith(".") or (hidden and _DUMP_NAME not in entry.name):
                continue
            elif entry.is_file(follow_symlinks=False):
                yield _Found(os.path.join(real, entry.name), entry.path, is_link=False)
            elif entry.is_symlink() and os.path.isfile(entry.path):
                yield _Found(os.path.realpath(entry.path), entry.path, is_link=True)


def _entries(folder: str) -> "list[os.DirEntry[str]]":
    """None of a folder that cannot be read or searched."""
    try:
        with os.scandir(folder) as entries:
            return list(entries) if os.access(folder, os.X_OK) else []
    except OSError:
        return []


class PieceStream(io.RawIOBase):
    """A raw stream whose subclasses implement only `read_piece`."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        target = memoryview(buffer)
        piece = self.read_piece(target.nbytes)
        target[: len(piece)] = piece
        return len(piece)

    def read_piece(self, size: int) -> bytes | memoryview:
        """At most `size` bytes; empty at the end."""
        raise NotImplementedError


class Continued(PieceStream):
    """The bytes that were already read from a stream that cannot seek, then the rest of the stream."""

    def __init__(self, begun: bytes, rest: BinaryIO) -> None:
        self._begun = memoryview(begun)
        self._rest = rest

    def read_piece(self, size: int) -> bytes | memoryview:
        piece = self._begun[:size] or self._rest.read(size)
        self._begun = self._begun[len(piece) :]
        return piece


class WithoutNuls(PieceStream):
    """Drops NUL bytes: a log that was truncated while a program kept writing starts with any number of them."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner

    def read_piece(self, size: int) -> bytes:
        while piece := self._inner.read(size):
            if left := piece.replace(b"\x00", b""):
                return left
        return b""
