"""The folder that evidence is copied into: only new files with harmless names, whatever a sender asks for."""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from forkpoint.collect.kinds import find_kind
from forkpoint.collect.limits import Meter
from forkpoint.collect.manifest import Copied
from forkpoint.errors import UsageError
from forkpoint.ingest.files import SNIFF

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
        """The copy; why there is none; or None if it is not evidence. The same file from two hosts that share a disk is
        kept once.
        """
        head = stream.read(SNIFF)
        kind = find_kind(head, original.path)
        if kind is None:
            return None
        if why := self.meter.may_open():
            return why
        target = self._place(original)
        digest, size = self._copy(head, stream, target)
        if not self._is_new(digest, original.path.rpartition("/")[2]):
            target.unlink()
            return None
        if original.size is not None and size < original.size and cut is None:
            cut = f"only {size} of {original.size} bytes are here"
        if original.modified is not None:
            os.utime(target, (original.modified, original.modified))
        file = str(target.relative_to(self.root))
        return Copied(file, original.place, original.path, kind, size, original.modified, digest, cut)

    def _place(self, original: Original) -> Path:
        """Made of clean parts, so it cannot leave the folder; in folders that only this program makes."""
        parts = [_ODD.sub("_", part)[-_LONGEST:] for part in original.path.split("/") if part not in ("", ".", "..")]
        label = _ODD.sub("_", original.label)[:_LONGEST].lstrip(".") or "place"
        with self._lock:
            target = self.root.joinpath(label, *(part.lstrip(".") or "_" for part in parts or ["file"]))
            while target.exists():
                target = target.with_name(f"again_{target.name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        return target

    def _copy(self, data: bytes, stream: BinaryIO, target: Path) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        with target.open("r+b") as copy:
            while data and (granted := self.meter.grant(len(data))):
                data = data[:granted]
                copy.write(data)
                digest.update(data)
                size += len(data)
                data = stream.read(_COPY) if self.meter.seconds_left else b""
        return digest.hexdigest(), size

    def _is_new(self, digest: str, name: str) -> bool:
        with self._lock:
            known = (digest, name) in self._hashes
            self._hashes.add((digest, name))
        return not known
