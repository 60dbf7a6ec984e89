"""Two checks of an archive. Before it is handed over, it is read back and must contain nothing that redaction would still replace; later,
anyone can ask whether it still contains what its manifest says, byte for byte: attachments get truncated or repacked.

The first checks what was actually written: names of members, the report's own data, and texts split in other places than when
they were redacted. The manifest is in the archive, so the second finds damage, not tampering.
"""

import base64
import gzip
import hashlib
import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO, cast

import msgspec

from forkpoint.errors import UnreadableInput, Unsafe
from forkpoint.evidence.archives import SmallHeader
from forkpoint.evidence.files import SNIFF
from forkpoint.gather.bundle_evidence import Json, redact_dump
from forkpoint.model.capture import Problem
from forkpoint.redact import Redactor
from forkpoint.redact.environments import mask_environments
from forkpoint.redact.logs import Lines, pieces
from forkpoint.redact.secrets import MASKED
from forkpoint.report.page import read_page
from forkpoint.traces.dump import MAX_BYTES, looks_like_dump

_PIECE = 3 << 19
"""Not the size used when texts are redacted, so that other lines are at the edges."""
_LISTED_AT_MOST = 5


@dataclass(frozen=True, slots=True)
class Leak:
    member: str
    line: int | None
    """None: in its name, or in a dump."""
    what: str


def require_clean(archive: str, called: str, redactor: Redactor) -> None:
    """`called`: the path that the user gave. Raises Unsafe."""
    leaks: list[Leak] = []
    for leak in find_leaks(archive, redactor):
        leaks.append(leak)
        if len(leaks) == _LISTED_AT_MOST:
            break
    if not leaks:
        return
    told = "; ".join(f"{leak.member}{f' line {leak.line}' if leak.line else ''} ({leak.what})" for leak in leaks)
    raise Unsafe(
        f"{called}: not written, since a second check still found what must not leave: {told}. Remove it from the file, or "
        f"leave the file out with --leave-out NAME; and please report it: redaction should have found it the first time"
    )


def find_leaks(archive: str, redactor: Redactor) -> Iterator[Leak]:
    """In the order of the archive."""
    own = deepcopy(redactor)
    lines = Lines(own, are_redacted=True)
    with gzip.open(archive) as whole, tarfile.open(fileobj=whole, mode="r|", tarinfo=SmallHeader) as opened:
        for info in opened:
            stream = opened.extractfile(info)
            opened.members = []  # pyrefly: ignore[missing-attribute] - it would keep every header
            if own.redact(info.name) != info.name:
                yield Leak(f"member {len(info.name)} characters long", None, "its name")
            elif stream:
                yield from _in_member(info.name, cast("BinaryIO", stream), own, lines)


def _in_member(name: str, stream: BinaryIO, redactor: Redactor, lines: Lines) -> Iterator[Leak]:
    inside = io.BufferedReader(cast("io.FileIO", stream), SNIFF)
    if looks_like_dump(inside.peek(SNIFF)[:SNIFF]):
        data = inside.read(MAX_BYTES + 1)
        if redact_dump(data, name, redactor.redact) != data:
            yield Leak(name, None, "a text of the dump")
        return
    own = _OWN_TEXTS.get(name.partition("/")[0])
    texts = own(inside.read()) if own else pieces(cast("BinaryIO", inside), _PIECE)
    before = 0
    for text in texts:
        after = lines.redact(mask_environments(text, redactor.names.counts))
        if after != text:
            yield _first_change(name, before, text, after)
            return
        before += text.count(b"\n")


def _first_change(name: str, before: int, text: bytes, after: bytes) -> Leak:
    pairs = zip(text.split(b"\n"), after.split(b"\n"), strict=False)
    number, new = next(((number, new) for number, (old, new) in enumerate(pairs, 1) if old != new), (1, after))
    found = MASKED.findall(new.decode("utf-8", "replace"))
    return Leak(name, before + number, found[-1][1:-1].removeprefix("masked-") if found else "a name or an address")


# ---------------------------------------------------------------------------------------------------------------------
# Text from the evidence in a report and a manifest: without forkpoint's own text, and with packed data unpacked.

_HASH = re.compile(rb"sha256-[A-Za-z0-9+/=]+")
_PACKED = re.compile(rb"(?<=>)[A-Za-z0-9+/]{40,}={0,2}(?=<)")
_IMAGE = re.compile(rb"(?<=data:image/svg\+xml;base64,)[A-Za-z0-9+/=]+")
_DRAWN = re.compile(rb">([^<]+)<")
_PICTURE_AT_MOST = 1 << 28


def _of_page(html: bytes) -> Iterator[bytes]:
    page = read_page()
    for own in (page.style, page.script):
        html = html.replace(own.encode(), b"", 1)
    for packed in _PACKED.findall(html):
        data = zlib.decompressobj().decompress(base64.b64decode(packed), _PICTURE_AT_MOST)
        yield data[4 : 4 + int.from_bytes(data[:4], "little")] + b"\n"
    for image in _IMAGE.findall(html):
        yield b"\n".join(_DRAWN.findall(base64.b64decode(image))) + b"\n"
    lines = frozenset(page.html.encode().split(b"\n"))
    for part in (_HASH, _PACKED, _IMAGE):
        html = part.sub(b"", html)
    yield b"\n".join(line for line in html.split(b"\n") if line not in lines)


def _of_manifest(data: bytes) -> Iterator[bytes]:
    """Names of files, and why some were left out. The rest is forkpoint's own text."""
    listed = json.loads(data)
    told = [file["name"] for file in listed["files"]]
    told += [f"{file['name']} {file['why']}" for file in listed["left_out"]]
    yield "\n".join(told).encode()


def _of_doctor(data: bytes) -> Iterator[bytes]:
    """Each string separately, as it was redacted."""
    return (text.encode("utf-8", "surrogatepass") for text in _strings(json.loads(data)))


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from chain.from_iterable(map(_strings, value))
    elif isinstance(value, dict):
        yield from value
        yield from chain.from_iterable(map(_strings, value.values()))


_OWN_TEXTS = {"report.html": _of_page, "manifest.json": _of_manifest, "doctor": _of_doctor}


# ---------------------------------------------------------------------------------------------------------------------
# The manifest, schema `forkpoint.bundle/1`, and whether the archive is as it says.


_READ_PIECE = 1 << 20
_MANIFEST_AT_MOST = 1 << 28
_BROKEN = (OSError, EOFError, zlib.error, tarfile.TarError)


BUNDLE_SCHEMA = "forkpoint.bundle/1"
MANIFEST = "manifest.json"


class BundleEntry(msgspec.Struct, frozen=True):
    """One member of the archive."""

    name: str
    kind: str
    size: int | None = msgspec.field(name="bytes")
    """Unpacked. None in a dry run, for files that were not made."""
    sha256: str | None = None
    """Hash of the unpacked file. None in a dry run."""


class LeftOutFile(msgspec.Struct, frozen=True):
    name: str
    why: str


class Contents(msgspec.Struct, frozen=True, tag_field="schema", tag=BUNDLE_SCHEMA):
    """The archive's manifest, which does not list itself."""

    verdict_schema: str
    files: tuple[BundleEntry, ...]
    left_out: tuple[LeftOutFile, ...]
    removed: dict[str, int]


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
