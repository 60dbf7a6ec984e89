"""Paths -> files, in an order that does not depend on the file system."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from forkpoint.errors import UnreadableInput, UsageError

STDIN = "-"


def find_files(paths: Sequence[str]) -> list[str]:
    """All files behind the paths, folders walked, each once, sorted. Hidden files are not evidence."""
    found: dict[str, str] = {}
    for path in paths:
        if path == STDIN:
            found[STDIN] = STDIN
        elif os.path.isdir(path):
            found.update((os.path.realpath(f), f) for f in _walk(path))
        elif os.path.isfile(path):
            found[os.path.realpath(path)] = path
        else:
            raise UsageError(f"{path}: no such file or folder")
    return sorted(found.values())


def read_bytes(path: str, limit: int) -> bytes:
    """The file's content; larger than `limit` is refused, not read in part."""
    try:
        size = os.stat(path).st_size
        if size > limit:
            raise UnreadableInput(f"{path}: {size} bytes, more than the {limit} that a dump may have; left out")
        return Path(path).read_bytes()
    except OSError as error:
        raise UnreadableInput(f"{path}: cannot be read ({error.strerror}); check its permissions") from error


def _walk(folder: str) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        yield from (os.path.join(here, f) for f in sorted(files) if not f.startswith("."))
