"""Files at URLs (s3, gs, az, http, memory): whatever fsspec has a driver for, read in ranges.

Errors of drivers and servers become an OSError, as for a local file.
"""

import errno
import io
from itertools import islice
from typing import Any, cast

from forkpoint.errors import UsageError
from forkpoint.evidence.files import SNIFF, PieceStream, shown
from forkpoint.evidence.text import clean

_BLOCK = 1 << 22
"""Bytes per request: a dump needs one request, a log a few, and a file that is not evidence at most one."""
_MOST_FILES = 200_000
"""The same limit as for archives: a server could list files forever."""
_ONE_BY_NAME = ("http", "https")
"""On web servers, only a name that ends in a slash is a folder; any other name is a file."""


def list_files(url: str) -> list[str]:
    """All files below the URL, sorted, without hidden ones. Raises UsageError."""
    protocol = url.partition("://")[0]
    if protocol in _ONE_BY_NAME and not url.endswith("/"):
        return [url]
    system, root = _system(url)
    try:
        # `find` skips what it cannot read; `ls` then raises the reason.
        names = list(islice(system.find(root), _MOST_FILES)) or system.ls(root, detail=False)
    except FileNotFoundError:
        names = []
    except Exception as error:
        raise UsageError(f"{shown(url)}: cannot be listed ({tell_driver_error(error)})") from error
    # A page of links may point anywhere: only files below the URL were requested.
    top = root.rstrip("/")
    inside = [name.removeprefix(top) for name in names if name == top or name.startswith(f"{top}/")]
    visible = sorted({rest for rest in inside if not any(part.startswith(".") for part in rest.split("/"))})
    if not visible:
        raise UsageError(f"{shown(url)}: no such file or directory")
    return [url.rstrip("/") + rest for rest in visible]


def open_url(url: str) -> "io.BufferedReader[io.FileIO]":
    """The file as a stream, seekable if the driver is. Raises UsageError and OSError."""
    system, path = _system(url)
    try:
        opened = system.open(path, "rb", block_size=_BLOCK, cache_type="readahead")
    except Exception as error:
        raise OSError(errno.EIO, tell_driver_error(error)) from error
    return io.BufferedReader(cast("io.FileIO", _Ranges(opened)), SNIFF)


def _system(url: str) -> tuple[Any, str]:
    """The driver, and the path in the driver's form. fsspec creates a driver once per server."""
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - only for URLs
    except ModuleNotFoundError as error:
        raise UsageError(f"{shown(url)}: needs fsspec: pip install 'forkpoint[collect]'") from error
    try:
        return url_to_fs(url)
    except ImportError as error:
        raise UsageError(f"{shown(url)}: needs another package: pip install {_missing(error)}") from error
    except Exception as error:
        raise UsageError(f"{shown(url)}: cannot be opened ({tell_driver_error(error)})") from error


def _missing(error: ImportError) -> str:
    """The name of the missing package: from the import that failed, since the message itself is free text."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ImportError) and cause.name:
            return cause.name
        cause = cause.__cause__ or cause.__context__
    return clean(str(error))


def tell_driver_error(error: Exception) -> str:
    """The driver's message, with the next step if the message does not say it."""
    name, text = type(error).__name__, clean(f"{type(error).__name__}: {error}")
    if isinstance(error, PermissionError) or "Credential" in name:
        return f"{text}; check the credentials: for s3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    if isinstance(error, ConnectionError | TimeoutError) or "Connect" in name or "Timeout" in name:
        return f"{text}; does the server answer, and is its address right? For s3: AWS_ENDPOINT_URL"
    return text


class _Ranges(PieceStream):
    """A driver's file. If the server does not support ranges, its length is unknown, and it can be read only once."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def seekable(self) -> bool:
        return getattr(self._file, "size", None) is not None

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read_piece(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except Exception as error:
            raise OSError(errno.EIO, tell_driver_error(error)) from error

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
