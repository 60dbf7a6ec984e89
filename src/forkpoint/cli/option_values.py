"""What options take: one reader per kind of value, for all commands."""

from argparse import ArgumentTypeError
from pathlib import Path

_MAX_COUNT = 1 << 40
_MAX_PORT = 65535
_MAX_RANKS = 1_000_000
_MAX_SECONDS = 1e9


def count(text: str) -> int:
    """Of things, from one on."""
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) < _MAX_COUNT:
        raise ArgumentTypeError("must be a number, at least 1")
    return int(text)


def ranks(text: str) -> int:
    """Of a job: as many as are believed anywhere (align.MAX_WORLD)."""
    if count(text) > _MAX_RANKS:
        raise ArgumentTypeError("must be a number, at least 1")
    return int(text)


def seconds(text: str) -> float:
    try:
        given = float(text)
    except ValueError:
        given = 0.0
    if not 0 < given < _MAX_SECONDS:
        raise ArgumentTypeError("must be a number of seconds above 0")
    return given


def port(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > _MAX_PORT:
        raise ArgumentTypeError(f"must be a number from 0 to {_MAX_PORT}")
    return int(text)


def folder(path: str) -> str:
    if not Path(path).is_dir():
        raise ArgumentTypeError(f"{path} is no folder")
    return path
