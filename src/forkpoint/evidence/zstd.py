"""Opens zstd streams with whatever is available: Python's own module (from 3.14), a package, or the program."""

import io
import shutil
import subprocess
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from forkpoint.evidence.files import PieceStream

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_WINDOW_LOG = 27
"""Limit of the memory that a stream may require: zstd's default."""
_PIECE = 1 << 18


def open_zstd(stream: BinaryIO) -> BinaryIO | str:
    """The unpacked stream, or a message that says what is missing."""
    for name in ("compression.zstd", "backports.zstd", "pyzstd"):
        module = _module(name)
        if module is not None:
            return _buffered(_Checked(module.ZstdFile(stream, "rb"), module.ZstdError))
    module = _module("zstandard")
    if module is not None:
        unpacker = module.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
        return _buffered(_Checked(unpacker.stream_reader(stream, read_across_frames=True), module.ZstdError))
    program = shutil.which("zstd")
    if program:
        return _buffered(_ZstdProcess(program, stream))
    return "is packed with zstd: `pip install zstandard` to read it, or unpack it with `zstd -d`"


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


def _buffered(raw: io.RawIOBase) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(cast("io.FileIO", raw), _PIECE))


class _Checked(PieceStream):
    """A module's stream. Its errors become `OSError`, as for other formats."""

    def __init__(self, inner: BinaryIO, error: type[Exception]) -> None:
        self._inner = inner
        self._error = error

    def read_piece(self, size: int) -> bytes:
        try:
            return self._inner.read(size)
        except self._error as error:
            raise OSError(str(error)) from error


class _ZstdProcess(io.RawIOBase):
    """The output of the zstd program. A thread feeds its standard input, since it may print before it has read everything."""

    def __init__(self, program: str, stream: BinaryIO) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - fixed arguments; the file is its input only
            [program, "-dcq", f"--memory={1 << (_WINDOW_LOG - 20)}MB"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._feeder = threading.Thread(target=_feed, args=(stream, self._process.stdin), daemon=True)
        self._feeder.start()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        output = cast("io.BufferedReader", self._process.stdout)
        size = output.readinto(buffer)
        if not size and self._process.wait() != 0:
            raise OSError("zstd cannot unpack it further")
        return size

    def close(self) -> None:
        if not self.closed:
            self._process.kill()
            self._process.wait()
            self._feeder.join()
            cast("io.BufferedReader", self._process.stdout).close()
        super().close()


def _feed(stream: BinaryIO, sink: BinaryIO) -> None:
    """Ends with the stream, or with the program: then the program's exit code says what went wrong."""
    try:
        with sink:
            while piece := stream.read(_PIECE):
                sink.write(piece)
    except (OSError, ValueError):
        return
