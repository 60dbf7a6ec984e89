"""Files and folders on this machine, or on a shared disk."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from forkpoint.collect.keep import EvidenceFolder, Original
from forkpoint.collect.manifest import CollectNote, Copied
from forkpoint.errors import UsageError
from forkpoint.ingest.files import find_files
from forkpoint.ingest.flight_recorder import MAX_BYTES

HERE = "here"


def copy_local(paths: Sequence[str], place: str, host: str, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    """All evidence behind the paths. Small files first: dumps are small, and one huge log must not crowd them out."""
    got: list[Copied | CollectNote] = []
    files: list[str] = []
    for path in paths:
        try:
            files += find_files([path])
        except UsageError as error:
            got.append(CollectNote(place, str(error)))
    own = str(folder.root) + os.sep
    fresh = [path for path in dict.fromkeys(files) if not str(Path(path).resolve()).startswith(own)]
    for path in sorted(fresh, key=lambda path: (_size(path) > MAX_BYTES, path)):
        done = _copy(path, place, host, folder)
        if isinstance(done, str):
            got.append(CollectNote(place, f"{path}: {done}"))
        elif done is not None:
            got.append(done)
    return got


def has_grown(copied: Copied) -> bool:
    """Whether a file of this machine is no longer what was copied."""
    try:
        now = os.stat(copied.origin)  # noqa: PTH116 - of every file again
    except OSError:
        return False
    return now.st_mtime != copied.modified or (copied.cut is None and now.st_size != copied.size)


def _copy(path: str, place: str, host: str, folder: EvidenceFolder) -> Copied | str | None:
    try:
        with Path(path).open("rb") as stream:
            status = os.fstat(stream.fileno())
            original = Original(place, host, str(Path(path).absolute()), status.st_size, status.st_mtime)
            return folder.keep(original, stream, _skip_to_end(stream, status.st_size, folder.meter.bytes_left))
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _skip_to_end(stream: BinaryIO, size: int, room: int) -> str | None:
    """Keeps the end of a log that does not fit: it is worth more than the beginning. Returns what is missing."""
    if size <= max(room, MAX_BYTES):
        return None
    stream.seek(size - room)
    stream.readline()
    return f"its first {stream.tell()} of {size} bytes were left out (--max-mib)"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - of every file
    except OSError:
        return 0
