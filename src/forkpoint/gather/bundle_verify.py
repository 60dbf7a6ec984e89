"""Checks that an archive contains what its manifest says, byte for byte: attachments get truncated or repacked.

The manifest is in the archive, so this finds damage, not tampering.
"""

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

import msgspec

from forkpoint.errors import UnreadableInput
from forkpoint.evidence.archives import SmallHeader
from forkpoint.gather.bundle import BUNDLE_SCHEMA, MANIFEST, Contents
from forkpoint.model.capture import Problem

_READ_PIECE = 1 << 20
_MANIFEST_AT_MOST = 1 << 28
_BROKEN = (OSError, EOFError, zlib.error, tarfile.TarError)


@dataclass(frozen=True, slots=True)
class VerifiedBundle:
    sound: int
    """Files that are as the manifest says."""
    problems: tuple[Problem, ...]


def verify_bundle(path: str) -> VerifiedBundle:
    """Raises UnreadableInput for anything but a bundle."""
    try:
        there, manifest = _hashes(path)
    except _BROKEN as error:
        raise UnreadableInput(f"{path}: cannot be read ({error}); get the archive again") from error
    expected = _expected(manifest, path)
    problems = [Problem(name, "is missing") for name in expected if name not in there]
    problems += [Problem(name, "is not in the manifest") for name in there if name not in expected]
    problems += [
        Problem(name, "differs from what was packed")
        for name in expected
        if there.get(name) not in (None, expected[name])
    ]
    return VerifiedBundle(sum(there.get(name) == expected[name] for name in expected), tuple(problems))


def _hashes(path: str) -> tuple[dict[str, str], bytes]:
    """The hash of each member, and the manifest itself. Nothing is unpacked to disk; only the manifest is kept in memory."""
    there: dict[str, str] = {}
    manifest = b""
    with gzip.open(path) as whole, tarfile.open(fileobj=whole, mode="r|", tarinfo=SmallHeader) as archive:
        for info in archive:
            stream = archive.extractfile(info) if info.isreg() else None
            archive.members = []  # pyrefly: ignore[missing-attribute] - it would keep every header
            if info.name == MANIFEST and stream:
                manifest = stream.read(_MANIFEST_AT_MOST)
            else:
                there[info.name] = _sha256(cast("BinaryIO", stream)) if stream else "not a regular file"
    return there, manifest


def _sha256(stream: BinaryIO) -> str:
    found = hashlib.sha256()
    for piece in _read(stream):
        found.update(piece)
    return found.hexdigest()


def _read(stream: BinaryIO) -> Iterator[bytes]:
    while piece := stream.read(_READ_PIECE):
        yield piece


def _expected(manifest: bytes, path: str) -> dict[str, str]:
    try:
        files = msgspec.json.decode(manifest, type=Contents).files
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnreadableInput(f"{path}: has no manifest of {BUNDLE_SCHEMA}; is it a complete bundle?") from error
    return {file.name: str(file.sha256) for file in files}
