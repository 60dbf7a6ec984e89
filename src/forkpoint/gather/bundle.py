"""One archive for a ticket: evidence, verdict, report and doctor reports, without what must not leave the site.

The redacted evidence is read for the verdict while it is written, so what is judged is what is packed. The map of
pseudonyms stays on this machine.
"""

import gzip
import hashlib
import io
import json
import os
import tarfile
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from forkpoint.errors import InputError, UsageError
from forkpoint.evidence import WAY_OUT, Progress, read, read_stream
from forkpoint.evidence.files import SNIFF, find_ways_out
from forkpoint.evidence.reading import Reading
from forkpoint.evidence.text import clean
from forkpoint.gather.bundle_check import MANIFEST, BundleEntry, Contents, LeftOutFile, require_clean
from forkpoint.gather.bundle_evidence import (
    MAP_SCHEMA,
    BundleNames,
    EvidenceKind,
    Redacting,
    evidence_files,
    open_evidence,
    read_doctor,
    redact_verdict,
    relative_name,
)
from forkpoint.model.capture import Capture, Problem
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import diagnose
from forkpoint.redact import Redactor
from forkpoint.report.escape import json_text
from forkpoint.report.json_report import SCHEMA as VERDICT_SCHEMA
from forkpoint.report.json_report import render_json
from forkpoint.report.page import render_html

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# ---------------------------------------------------------------------------------------------------------------------
# What is in a bundle, and what was removed. Schema `forkpoint.bundle/1`.


@dataclass(frozen=True, slots=True)
class Bundle:
    inside: tuple[BundleEntry, ...]
    left_out: tuple[Problem, ...]
    removed: tuple[tuple[str, int], ...]
    """What was replaced in the evidence, and how often."""
    names: dict[str, str]
    """Originals by pseudonym."""
    verdict: Verdict | None
    """From the evidence as it is in the archive. None in a dry run."""


def render_contents(bundle: Bundle) -> str:
    """The manifest, and what `--json` prints."""
    left_out = tuple(LeftOutFile(problem.file, problem.text) for problem in bundle.left_out)
    return json_text(Contents(VERDICT_SCHEMA, bundle.inside, left_out, dict(bundle.removed)))


# ---------------------------------------------------------------------------------------------------------------------
# Writes the .tar.gz, and hashes each member on the way.

_LEVEL = 1
"""Logs pack four to five to one at twice the speed of the default level, which packs them seven to one."""
_IN_MEMORY = 64 << 20


class BundledFile:
    """One file of the archive, while it is written."""

    def __init__(self, spool: "SpooledTemporaryFile[bytes]") -> None:
        self._spool = spool
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, piece: bytes) -> None:
        self._spool.write(piece)
        self._hash.update(piece)
        self.size += len(piece)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


class TarWriter:
    """All members have no owner, mode 0600 and the same time, so that the archive does not show who packed it."""

    def __init__(self, stream: BinaryIO, folder: str) -> None:
        """`folder`: for members that do not fit in memory."""
        self._folder = folder
        self._time = int(time.time())
        self._gzip = gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=stream, mtime=0)
        self._tar = tarfile.TarFile(fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT)

    @contextmanager
    def member(self, name: str) -> Generator[BundledFile]:
        """The header needs the size, so the content is buffered until it is complete. An exception adds no member."""
        with SpooledTemporaryFile(_IN_MEMORY, dir=self._folder) as spool:
            member = BundledFile(spool)
            yield member
            spool.seek(0)
            self._add(name, member.size, spool)

    def add_whole(self, name: str, data: bytes) -> None:
        self._add(name, len(data), BytesIO(data))

    def close(self) -> None:
        self._tar.close()
        self._gzip.close()

    def _add(self, name: str, size: int, content: IO[bytes]) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, self._time
        self._tar.addfile(info, content)


# ---------------------------------------------------------------------------------------------------------------------
# Reads redacted evidence while it is written to the archive.

if TYPE_CHECKING:
    Stream = io.BufferedReader[io.FileIO]


class Passing(io.RawIOBase):
    """A stream over pieces; each piece is written to the archive when it is read."""

    def __init__(self, pieces: Iterator[bytes], member: BundledFile) -> None:
        self._pieces, self._member = pieces, member
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._member.write(piece)
            self._rest = memoryview(piece)
        target = memoryview(buffer)
        part = self._rest[: target.nbytes]
        self._rest = self._rest[len(part) :]
        target[: len(part)] = part
        return len(part)

    def pass_rest(self) -> None:
        """Writes what the reader left unread to the archive."""
        for piece in self._pieces:
            self._member.write(piece)

    def buffered(self) -> "Stream":
        return io.BufferedReader(cast("io.FileIO", self), SNIFF)


def read_streams(streams: "Iterable[tuple[str, Stream]]") -> Capture:
    """Like `evidence.read`, for named streams: each is read before the next is opened."""
    reading = Reading()
    for name, stream in streams:
        try:
            read_stream(stream, name, reading)
        except InputError as error:
            reading.problems.append(Problem(name, clean(str(error).removeprefix(f"{name}: "))))
    reading.require(("the redacted evidence",))
    return reading.capture()


# ---------------------------------------------------------------------------------------------------------------------
# Makes a bundle, or lists what would be in it.

_HOSTS_AND_USERS = ("host", "user")


@dataclass(frozen=True, slots=True)
class BundleOrder:
    paths: tuple[str, ...]
    out: str
    map_file: str
    source: tuple[str, ...] = ()
    """For sites, probes and fixes. None of its files go into the archive, but patches contain lines of it."""
    doctors: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    """Patterns of files that are not packed."""
    dry_run: bool = False
    follow_links: bool = False
    """Also follow links that lead out of a folder."""


@dataclass(slots=True)
class _Making:
    order: BundleOrder
    redactor: Redactor
    redacting: Redacting
    names: BundleNames
    progress: Progress | None
    inside: list[BundleEntry] = field(default_factory=list[BundleEntry])
    left_out: list[Problem] = field(default_factory=list[Problem])


def make_bundle(order: BundleOrder, progress: Progress | None = None) -> Bundle:
    """Raises UsageError, UnreadableInput if nothing can be diagnosed, and Unsafe if the archive still contains a secret."""
    redactor = Redactor.of(read(order.paths, progress, follow_links=order.follow_links))
    known = {original: name for name, original in redactor.map.items() if name.startswith(_HOSTS_AND_USERS)}
    making = _Making(order, redactor, Redacting(redactor), BundleNames(redactor.redact, known), progress)
    doctors = [
        (f"doctor/{number}.json", read_doctor(path, redactor.redact)) for number, path in enumerate(order.doctors, 1)
    ]
    if order.dry_run:
        making.inside += [
            BundleEntry(name, kind, sum(map(len, redacted))) for name, kind, redacted in _evidence(making)
        ]
        making.inside += [BundleEntry(name, _made_kind(name), len(data)) for name, data in doctors]
        making.inside += [
            BundleEntry(name, _made_kind(name), None) for name in ("verdict.json", "report.html", MANIFEST)
        ]
        return _made(making, None)
    verdict = _write(making, doctors)
    _write_map(order.map_file, order.out, redactor.map)
    return _made(making, verdict)


def _made(making: _Making, verdict: Verdict | None) -> Bundle:
    removed = tuple(sorted(making.redacting.counts.items()))
    return Bundle(tuple(making.inside), tuple(making.left_out), removed, making.redactor.map, verdict)


def _write(making: _Making, doctors: Sequence[tuple[str, bytes]]) -> Verdict:
    """The archive appears only when it is complete."""
    target = Path(os.path.realpath(making.order.out))
    part = target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        with part.open("xb") as stream, closing(TarWriter(stream, str(target.parent))) as writer:
            os.fchmod(stream.fileno(), 0o600)
            verdict = _judge(making, read_streams(_pass_on(making, writer)))
            made = [
                ("verdict.json", render_json(verdict).encode() + b"\n"),
                ("report.html", render_html(verdict).encode()),
            ]
            for name, data in (*doctors, *made):
                _add_whole(making, writer, name, data)
            writer.add_whole(MANIFEST, render_contents(_made(making, verdict)).encode() + b"\n")
        require_clean(str(part), making.order.out, making.redactor)
        part.replace(target)
    except OSError as error:
        raise UsageError(f"{making.order.out}: cannot be written ({error.strerror}); choose another place") from error
    finally:
        part.unlink(missing_ok=True)
    return verdict


def _evidence(making: _Making) -> Iterator[tuple[str, EvidenceKind, Iterator[bytes]]]:
    """Each file of evidence by its name in the archive, redacted; what is left out is noted."""
    order = making.order
    files = evidence_files(order.paths, (order.out, order.map_file), order.leave_out, follow_links=order.follow_links)
    for link in () if order.follow_links else find_ways_out(order.paths):
        _leave_out(making, making.names.harmless(relative_name(link, order.paths)), WAY_OUT)
    ends = list(accumulate(Path(path).stat().st_size for path in files))
    for end, path in zip(ends, files, strict=True):
        if making.progress:
            making.progress(end, ends[-1], path)
        for found in open_evidence(path, order.paths, follow_links=order.follow_links):
            if isinstance(found, Problem):
                _leave_out(making, making.names.harmless(found.file), found.text)
                continue
            name = making.names.name(found.path)
            try:
                redacted = making.redacting.redact(found)
            except InputError as error:
                _leave_out(making, name, str(error).removeprefix(f"{found.path}: "))
            else:
                yield name, found.kind, redacted


def _leave_out(making: _Making, name: str, why: str) -> None:
    making.left_out.append(Problem(name, making.redactor.redact(why)))


def _pass_on(making: _Making, writer: TarWriter) -> "Iterator[tuple[str, Stream]]":
    """Evidence as it is in the archive, for the reader; writing it is a side effect of reading."""
    for name, kind, redacted in _evidence(making):
        with writer.member(name) as member:
            passing = Passing(redacted, member)
            yield clean(name), passing.buffered()
            passing.pass_rest()
        making.inside.append(BundleEntry(name, kind, member.size, member.sha256))


def _judge(making: _Making, capture: Capture) -> Verdict:
    """Judges redacted evidence, so a shortened line or stack cannot contain half a secret."""
    return redact_verdict(diagnose(capture, making.order.source, picture=True), making.redactor.redact)


def _add_whole(making: _Making, writer: TarWriter, name: str, data: bytes) -> None:
    writer.add_whole(name, data)
    making.inside.append(BundleEntry(name, _made_kind(name), len(data), hashlib.sha256(data).hexdigest()))


def _made_kind(name: str) -> str:
    return "doctor" if name.startswith("doctor/") else "made by forkpoint"


def _write_map(path: str, bundle: str, names: dict[str, str]) -> None:
    """Only for this user: mode 0600."""
    part = Path(f"{path}.{os.getpid()}.part")
    document = {"schema": MAP_SCHEMA, "bundle": Path(bundle).name, "names": names}
    try:
        part.unlink(missing_ok=True)
        with open(part, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(json.dumps(document, indent=2) + "\n")
        part.replace(path)
    except OSError as error:
        raise UsageError(f"--map {path}: cannot be written ({error.strerror}); choose another place") from error
    finally:
        part.unlink(missing_ok=True)
