"""Which folders are incidents, and in which state their files are."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from forkpoint.errors import UsageError
from forkpoint.ingest.files import find_files

MAX_FOLDERS = 200
"""Pages are kept in memory, half a megabyte each at most: 100 MB."""


@dataclass(frozen=True, slots=True)
class IncidentFolder:
    """The evidence of one incident as it lies on disk."""

    key: str
    """Its place in addresses: names of folders are input and stay out of them."""
    name: str
    path: str
    state: str
    """Changes with the names, sizes and times of its files."""
    newest: float
    """When the newest file was written, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class IncidentFolders:
    found: tuple[IncidentFolder, ...]
    """Newest first."""
    left_out: int
    alone: bool
    """The served folder itself is the incident: there is nothing to list."""


def find_folders(root: str) -> IncidentFolders:
    """With files of its own, `root` (from / on) is one incident, with all that lies below; else each sub-folder is one."""
    try:
        with os.scandir(root) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:  # gone, perhaps to come back: nothing to show meanwhile
        return IncidentFolders((), 0, alone=False)
    if any(entry.is_file() for entry in shown):
        return IncidentFolders(tuple(_look([root])), 0, alone=True)
    # Links to folders are not followed, here as below: they could lead anywhere.
    found = sorted(
        _look([entry.path for entry in shown if entry.is_dir(follow_symlinks=False)]), key=lambda f: (-f.newest, f.name)
    )
    return IncidentFolders(tuple(found[:MAX_FOLDERS]), len(found[MAX_FOLDERS:]), alone=False)


def _look(paths: Sequence[str]) -> Iterator[IncidentFolder]:
    for path in paths:
        files = list(_states(path))
        if files:
            state = _digest("\0".join(f"{file}\0{size}\0{time}" for file, size, time in files))
            newest = max(time for _, _, time in files) / 1e9
            yield IncidentFolder(_digest(path), Path(path).name, path, state, newest)


def _states(path: str) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of every file that would be read."""
    try:
        files = find_files([path])
    except UsageError:  # went away since
        return
    for file in files:
        try:
            found = Path(file).stat()
        except OSError:  # this one, too
            continue
        yield file, found.st_size, found.st_mtime_ns


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
