"""Opens files inside a given folder without following links that point outside it, even if a link appears meanwhile.

What was a file when the folder was listed may be a link when it is opened. So every component of the path is opened relative to
its parent, without following links. If one is a link, the path is resolved, and opened in the same way if it is inside the folder.
"""

import errno
import io
import os
from collections.abc import Sequence

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LeadsOut(OSError):
    """The path is, or contains, a link that points outside its folder."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "a link that points outside the folder", path)


def leads_out(path: str, root: str) -> bool:
    return _way_down(path, os.path.realpath(root)) is None


def _way_down(path: str, base: str) -> str | None:
    """The real path, as it continues from this real folder; None if it is outside."""
    real, front = os.path.realpath(path), f"{base.rstrip('/')}/"
    return real.removeprefix(front) if f"{real}/".startswith(front) else None


def root_of(path: str, roots: Sequence[str]) -> str | None:
    """The innermost of these folders that contains the path; None for a path that was given itself."""
    below = [root for root in roots if path != root and path.startswith(f"{root.rstrip('/')}/")]
    return max(below, key=len) if below and path not in roots else None


def open_beneath(path: str, root: str) -> io.FileIO:
    """Raises LeadsOut, and OSError like `open`."""
    way = path.removeprefix(f"{root.rstrip('/')}/")
    if way != path and not _UNUSUAL.isdisjoint(way.split("/")):
        way = path
    if way != path:
        try:
            return _open_way(root, way)
        except LeadsOut:  # it contains a link; it may stay inside
            pass
    base = os.path.realpath(root)
    real = _way_down(path, base)
    if real is None:
        raise LeadsOut(path)
    return _open_way(base, real)


_UNUSUAL = frozenset(("", ".", ".."))


def _open_way(base: str, way: str) -> io.FileIO:
    """Opens each component in the folder before it. Raises LeadsOut if one of them is a link."""
    *folders, name = way.split("/")
    folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            deeper = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = deeper
        return io.FileIO(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise LeadsOut(f"{base}/{way}") from error
        raise
    finally:
        os.close(folder)
