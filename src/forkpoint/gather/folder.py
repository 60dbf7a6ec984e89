"""The folder that evidence is copied into: which files are evidence, how much may be copied, and the manifest."""

import errno
import hashlib
import os
import re
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum, auto
from io import FileIO
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import BinaryIO

import msgspec

from forkpoint.errors import NoRoom, UsageError
from forkpoint.evidence import TEXT_SUFFIXES
from forkpoint.evidence.files import SNIFF, is_archive
from forkpoint.evidence.machine.kernel import looks_like_kernel_log
from forkpoint.evidence.machine.ras import looks_like_ras
from forkpoint.evidence.rank_states import looks_like_rank_states
from forkpoint.evidence.stacks.read import looks_like_stacks
from forkpoint.traces.dump import looks_like_dump

# ---------------------------------------------------------------------------------------------------------------------
# Which files are evidence. A job's folder also contains source, data and checkpoints, which are not copied.

_PACKED = re.compile(r"\.(?:log|txt|out|err|json)\.(?:gz|zst|xz)$|\.(?:tar|tar\.gz|tar\.zst|tar\.xz|tgz|zip)$")
_LOG = re.compile(r"(?i:stdout|stderr|rank[_.-]?\d|\blog)")
_ERROR_FILE = "error.json"
"""torchrun's."""
_PICKLES = (".pt", ".pth", ".ckpt", ".pkl.gz")


class FileKind(StrEnum):
    DUMP = auto()
    STACKS = auto()
    RAS = auto()
    KERNEL = auto()
    RANKS = auto()
    """What the guard or a watch knows about the ranks (`ranks.json`)."""
    LOG = auto()
    ARCHIVE = auto()


def find_kind(head: bytes, name: str) -> FileKind | None:
    """From the first bytes and the name; None: not evidence. An empty log counts: its rank may have died before it wrote."""
    pure = PurePosixPath(name)
    if pure.suffix in _PICKLES:
        return None
    if is_archive(head):
        return FileKind.ARCHIVE if _PACKED.search(pure.name) else None
    if looks_like_dump(head):
        return FileKind.DUMP
    if b"\x00" in head:
        return None
    return _kind_of_text(head.decode("utf-8", "replace"), pure)


def _kind_of_text(head: str, name: PurePosixPath) -> FileKind | None:
    if looks_like_rank_states(head):
        return FileKind.RANKS
    if (
        name.suffix not in TEXT_SUFFIXES
        and name.name != _ERROR_FILE
        and not (name.suffix in ("", ".json") and _LOG.search(name.name))
    ):
        return None
    if looks_like_kernel_log(head):
        return FileKind.KERNEL
    if looks_like_ras(head):
        return FileKind.RAS
    return FileKind.STACKS if looks_like_stacks(head) else FileKind.LOG


# ---------------------------------------------------------------------------------------------------------------------
# Limits on what is gathered. What exceeds them is noted, and the rest continues.


@dataclass(frozen=True, slots=True)
class CollectLimits:
    total_bytes: int = 4 << 30
    files: int = 20_000
    seconds: float = 300.0
    """For everything, from asking the first place to the last byte."""


class Meter:
    """Shared by all places, which are visited in parallel."""

    def __init__(self, limits: CollectLimits) -> None:
        self._limits = limits
        self._lock = Lock()
        self._bytes = limits.total_bytes
        self._files = limits.files
        self._deadline = time.monotonic() + limits.seconds

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    @property
    def bytes_left(self) -> int:
        return max(0, self._bytes)

    @property
    def is_spent(self) -> bool:
        return self.seconds_left == 0.0 or not self._files or self._bytes <= 0

    def may_open(self) -> str | None:
        """Why not, or None. Call it once per file."""
        if self.seconds_left == 0.0:
            return f"not done after {self._limits.seconds:g} s (--seconds)"
        with self._lock:
            if not self._files:
                return f"more than {self._limits.files} files (--max-files)"
            if self._bytes <= 0:
                return f"more than {self._limits.total_bytes >> 20} MiB (--max-mib)"
            self._files -= 1
        return None

    def grant(self, size: int) -> int:
        """How many of these bytes may still be copied."""
        with self._lock:
            granted = max(0, min(size, self._bytes))
            self._bytes -= granted
        return granted


# ---------------------------------------------------------------------------------------------------------------------
# What was gathered: where from, how large, how old, and what is wrong with it. Schema `forkpoint.collect/1`.

MANIFEST_NAME = "manifest.json"


class Copied(msgspec.Struct, frozen=True):
    """One file of the folder."""

    file: str
    """Relative to the folder."""
    place: str
    """As the user gave it, or `here`."""
    origin: str
    """Its path, or its name at that place."""
    kind: FileKind
    size: int = msgspec.field(name="bytes")
    modified: float | None
    """Seconds since 1970, of the original. None: unknown."""
    sha256: str
    cut: str | None = None
    """What is missing from the original: it did not fit, or the place stopped sending."""
    growing: bool = False
    """The original was written to while it was copied."""
    truncated: str | None = None
    """For dumps: where it is truncated."""
    stale: str | None = None
    """Why it does not belong to this run."""


class CollectNote(msgspec.Struct, frozen=True):
    """What could not be copied from a place."""

    place: str
    text: str


class Manifest(msgspec.Struct, frozen=True, tag_field="schema", tag="forkpoint.collect/1"):
    taken_at: str
    """UTC."""
    files: tuple[Copied, ...]
    notes: tuple[CollectNote, ...]


# ---------------------------------------------------------------------------------------------------------------------
# The folder that evidence is copied into: only new files with harmless names, whatever a sender asks for.

_COPY = 1 << 20
_ODD = re.compile(r"[^\w.@=+,%:-]", re.ASCII)
_LONGEST = 120


@dataclass(frozen=True, slots=True)
class Original:
    """A file as its source describes it."""

    place: str
    label: str
    """The folder for this place."""
    path: str
    size: int | None
    modified: float | None


class EvidenceFolder:
    def __init__(self, root: str, meter: Meter) -> None:
        """Raises UsageError unless the folder is new or empty: files already there could be mistaken for this job's."""
        self.root = Path(root).resolve()
        self.meter = meter
        self._lock = Lock()
        self._hashes: set[tuple[str, str]] = set()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.root.chmod(0o700)
            if any(self.root.iterdir()):
                raise UsageError(f"{root}: is not empty; name a new folder")
        except OSError as error:
            raise UsageError(f"{root}: {error.strerror}; name a folder that can be written to") from error

    def keep(self, original: Original, stream: BinaryIO, cut: str | None = None) -> Copied | str | None:
        """Returns the copy; why there is none; or None if it is not evidence or already here. The same file from two hosts
        that share a disk is kept once.
        """
        head = stream.read(SNIFF)
        kind = find_kind(head, original.path)
        if kind is None:
            return None
        if why := self.meter.may_open():
            return why
        try:
            self._check_room(original)
            target = self._place(original)
            digest, size = self._copy(head, stream, target)
        except NoRoom as error:
            return str(error)
        if not self._is_new(digest, original.path.rpartition("/")[2]):
            target.unlink()
            return None
        if original.size is not None and size < original.size and cut is None:
            cut = f"only {size} of {original.size} bytes are here"
        if original.modified is not None:
            os.utime(target, (original.modified, original.modified))
        file = str(target.relative_to(self.root))
        return Copied(file, original.place, original.path, kind, size, original.modified, digest, cut)

    def _check_room(self, original: Original) -> None:
        """Checked before copying: half of a large file would take the space of small ones. Raises NoRoom."""
        room = shutil.disk_usage(self.root).free
        if original.size is not None and min(original.size, self.meter.bytes_left) > room:
            raise NoRoom(self._no_room(os.strerror(errno.ENOSPC)))

    def _no_room(self, why: str) -> str:
        return f"cannot be written here ({why}): choose a folder with more space, or free some in {self.root}"

    def _place(self, original: Original) -> Path:
        """Built from cleaned parts, so it cannot leave the folder."""
        parts = [_ODD.sub("_", part)[-_LONGEST:] for part in original.path.split("/") if part not in ("", ".", "..")]
        label = _ODD.sub("_", original.label)[:_LONGEST].lstrip(".") or "place"
        with self._lock, self._writing():
            target = self.root.joinpath(label, *(part.lstrip(".") or "_" for part in parts or ["file"]))
            while target.exists():
                target = target.with_name(f"again_{target.name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        return target

    def _copy(self, data: bytes, stream: BinaryIO, target: Path) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        with target.open("r+b", buffering=0) as copy:  # unbuffered: a full disk shows at once
            while data and (granted := self.meter.grant(len(data))):
                data = data[:granted]
                with self._writing(target):
                    _write_all(copy, data)
                digest.update(data)
                size += len(data)
                data = stream.read(_COPY) if self.meter.seconds_left else b""
        return digest.hexdigest(), size

    @contextmanager
    def _writing(self, target: Path | None = None) -> Generator[None]:
        """Turns errors of this folder's disk into NoRoom, as opposed to errors of a file's source. A partial file is removed:
        others may fit in its space.
        """
        try:
            yield
        except OSError as error:
            if target is not None:
                target.unlink()
            raise NoRoom(self._no_room(error.strerror or str(error))) from error

    def _is_new(self, digest: str, name: str) -> bool:
        with self._lock:
            known = (digest, name) in self._hashes
            self._hashes.add((digest, name))
        return not known


def noted(done: Copied | str | None, place: str, file: str = "") -> list[Copied | CollectNote]:
    """What `keep` returned: the copy, or a note that says why there is none."""
    if isinstance(done, str):
        return [CollectNote(place, f"{file}: {done}" if file else done)]
    return [done] if done else []


def _write_all(copy: FileIO, data: bytes) -> None:
    """A disk that fills up writes a part, and raises only at the next write."""
    written = 0
    while written < len(data):
        written += copy.write(memoryview(data)[written:])
