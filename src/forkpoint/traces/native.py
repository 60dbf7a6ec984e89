"""The compiled reader, if `forkpoint-native` is installed. It produces the same records and table entries.

It accepts only complete, well-formed dumps of current PyTorch releases. Dumps that it declines are read in Python, so
that errors, salvage and limits are the same with and without it. FORKPOINT_NATIVE=0 turns it off.
"""

import ctypes
import os
from functools import cache
from importlib import import_module
from typing import Final, Self

from msgspec import Struct

from forkpoint.model.layout import I64, U8, U32, Reader

FORMAT_VERSION: Final = 2
"""Version of tokens, tables and records: a library with another version is not used."""
_SWITCH: Final = "FORKPOINT_NATIVE"
_Start = ctypes.c_char * 0
"""Pointer to the start of a buffer."""


class Claimable(Struct, frozen=True):
    """What is needed to find out which rank a dump belongs to."""

    stated: int | None
    """The rank, if the dump states it."""
    in_messages: int | None
    """The rank's own end in one of its messages."""
    declared: tuple[int, ...]
    """Keys of the members of the groups that it declares, for entries in `new_tables`."""
    entries: int


class NativePacker:
    """Reads dumps one after another and collects what they share. Not thread-safe."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._context = ctypes.c_void_p(library.fp_new())
        self._out = ctypes.c_void_p()
        self._size = ctypes.c_size_t()
        self._answer = (ctypes.byref(self._out), ctypes.byref(self._size))

    @classmethod
    def if_installed(cls) -> Self | None:
        """None if the library is missing, turned off, or of another version."""
        library = None if os.environ.get(_SWITCH) == "0" else _library()
        return None if library is None else cls(library)

    def __del__(self) -> None:
        self._library.fp_free(self._context)

    def decode(self, data: bytes | memoryview) -> Claimable | None:
        """None: declined, use the Python reader. A memoryview must be writable."""
        start = data if isinstance(data, bytes) else _Start.from_buffer(data)
        answer = self._taken(self._library.fp_decode(self._context, start, len(data), *self._answer))
        if answer is None:
            return None
        reader = Reader(answer)
        stated, in_messages = _number_if_any(reader), _number_if_any(reader)
        declared = reader.keys(reader.number(U32))
        return Claimable(stated, in_messages, declared, reader.number(U32))

    def summarise(self, rank: int) -> bytes | None:
        """The record of the last decoded dump. None: there was none, or the library has failed."""
        return self._taken(self._library.fp_summarise(self._context, rank, *self._answer))

    def new_tables(self) -> bytes:
        """Table entries since the last call, in the format of `SharedTables.stream`."""
        return self._taken(self._library.fp_tables(self._context, *self._answer)) or b""

    def _taken(self, status: int) -> bytes | None:
        return None if status else ctypes.string_at(self._out, self._size.value)


def _number_if_any(reader: Reader) -> int | None:
    return reader.number(I64) if reader.number(U8) else None


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(import_module("forkpoint_native").library()))
    except (ImportError, OSError, StopIteration):
        return None
    library.fp_version.restype = ctypes.c_uint32
    if library.fp_version() != FORMAT_VERSION:
        return None
    answer = (ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t))
    library.fp_new.restype = ctypes.c_void_p
    library.fp_free.argtypes = (ctypes.c_void_p,)
    library.fp_free.restype = None
    library.fp_decode.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, *answer)
    library.fp_summarise.argtypes = (ctypes.c_void_p, ctypes.c_int64, *answer)
    library.fp_tables.argtypes = (ctypes.c_void_p, *answer)
    return library
