"""Writing a report to a file: whole or not at all."""

import os
from collections.abc import Iterable
from pathlib import Path

from forkpoint.errors import UsageError


def check_writable(option: str, path: str) -> None:
    """Raises UsageError for what can be known before the work is done."""
    folder = Path(path).parent
    if Path(path).is_dir():
        raise UsageError(f"{option} {path}: is a folder; name a file in it")
    if not folder.is_dir():
        raise UsageError(f"{option} {path}: {folder} is no folder; make it first")
    # A file is replaced, for which its folder counts; a pipe or a device is written to.
    in_place = Path(path).exists() and not Path(path).is_file()
    if not os.access(path if in_place else folder, os.W_OK):
        raise UsageError(f"{option} {path}: may not be written; choose another place")


def write_file(path: str, pieces: Iterable[str]) -> None:
    """Readers see the old file or the new one. Raises UsageError where that cannot be."""
    write_bytes(path, (piece.encode("utf-8", "backslashreplace") for piece in pieces))


def write_bytes(path: str, pieces: Iterable[bytes]) -> None:
    """As write_file."""
    target = Path(os.path.realpath(path))
    in_place = target.exists() and not target.is_file()
    part = target if in_place else target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.writelines(pieces)
        if not in_place:
            part.replace(target)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}; choose another place") from error
    finally:
        if not in_place:
            part.unlink(missing_ok=True)
