"""Paths -> files, in an order that does not depend on the file system."""

import os
from collections.abc import Iterator, Sequence

from forkpoint.errors import UsageError

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


def _walk(folder: str) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        yield from (os.path.join(here, f) for f in sorted(files) if not f.startswith("."))
