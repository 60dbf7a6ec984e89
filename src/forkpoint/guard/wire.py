"""How guards' messages travel through the store: msgpack in, the expected type out, or nothing.

Anyone who reaches the store can write there, so whatever is not exactly the expected type is dropped.
"""

from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

_MAX_BYTES: Final = 64 << 20


def encode(message: object) -> bytes:
    return msgspec.msgpack.encode(message)


def decode(data: bytes | None, kind: type[T]) -> T | None:
    """None: there is no message, or not of this type."""
    if data is None or len(data) > _MAX_BYTES:
        return None
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MemoryError):
        return None


def printable(text: str) -> str:
    r"""Lone surrogates, as in names of files that are not UTF-8, cannot travel: `\udcff` is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()
