"""Files below a folder that somebody gave: links that lead out of it are not followed, at whatever moment they are made.

What was a file when a folder was listed may be a link when it is read. So every part of the way is opened from the folder on,
without following a link there; links that stay inside are resolved first.
"""

import errno
import io
import os
from collections.abc import Sequence

_WAY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LeadsOut(OSError):
    """The path is, or goes through, a link that leads out of its folder."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "a link that leads out of the folder", path)


def leads_out(path: str, root: str) -> bool:
    inside = os.path.realpath(root)
    real = os.path.realpath(path)
    return real != inside and not real.startswith(f"{inside.rstrip('/')}/")


def root_of(path: str, roots: Sequence[str]) -> str | None:
    """The folder of these below which a path lies; None for a path that was given itself."""
    below = [root for root in roots if path != root and path.startswith(f"{root.rstrip('/')}/")]
    return max(below, key=len) if below and path not in roots else None


def open_beneath(path: str, root: str) -> io.FileIO:
    """Raises LeadsOut, and OSError like `open`."""
    if leads_out(path, root):
        raise LeadsOut(path)
    base = os.path.realpath(root)
    *way, name = os.path.relpath(os.path.realpath(path), base).split("/")
    folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in way:
            deeper = os.open(part, _WAY, dir_fd=folder)
            os.close(folder)
            folder = deeper
        return io.FileIO(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):  # it became a link after it was resolved
            raise LeadsOut(path) from error
        raise
    finally:
        os.close(folder)
