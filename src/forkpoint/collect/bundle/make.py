"""Makes a bundle, or lists what would be in it."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from forkpoint.collect.bundle.contents import MANIFEST, Bundle, Inside, render_contents
from forkpoint.collect.bundle.doctors import read_doctor
from forkpoint.collect.bundle.evidence import MAP_SCHEMA, EvidenceKind, evidence_files, open_evidence
from forkpoint.collect.bundle.names import BundleNames
from forkpoint.collect.bundle.passing import Passing, read_streams
from forkpoint.collect.bundle.redacting import Redacting
from forkpoint.collect.bundle.tar import TarWriter
from forkpoint.collect.bundle.words import in_other_words
from forkpoint.errors import InputError, UsageError
from forkpoint.ingest import Progress, read
from forkpoint.ingest.text import clean
from forkpoint.model.capture import Capture, Problem
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import diagnose
from forkpoint.redact import Redactor
from forkpoint.report.html import render_html
from forkpoint.report.json_report import render_json

if TYPE_CHECKING:
    from forkpoint.collect.bundle.passing import Stream

_HOSTS_AND_USERS = ("host", "user")


@dataclass(frozen=True, slots=True)
class Order:
    paths: tuple[str, ...]
    out: str
    map_file: str
    source: tuple[str, ...] = ()
    """For sites, probes and fixes. No file of it goes into the archive; lines of it stand in patches."""
    doctors: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass(slots=True)
class _Making:
    order: Order
    redactor: Redactor
    redacting: Redacting
    names: BundleNames
    progress: Progress | None
    inside: list[Inside] = field(default_factory=list[Inside])
    left_out: list[Problem] = field(default_factory=list[Problem])


def make_bundle(order: Order, progress: Progress | None = None) -> Bundle:
    """Raises UsageError, and UnreadableInput where nothing can be diagnosed."""
    redactor = Redactor.of(read(order.paths, progress))
    known = {original: name for name, original in redactor.map.items() if name.startswith(_HOSTS_AND_USERS)}
    making = _Making(order, redactor, Redacting(redactor), BundleNames(redactor.redact, known), progress)
    doctors = [
        (f"doctor/{number}.json", read_doctor(path, redactor.redact)) for number, path in enumerate(order.doctors, 1)
    ]
    if order.dry_run:
        making.inside += [Inside(name, kind, sum(map(len, redacted))) for name, kind, redacted in _evidence(making)]
        making.inside += [Inside(name, _kind(name), len(data)) for name, data in doctors]
        making.inside += [Inside(name, _kind(name), None) for name in ("verdict.json", "report.html", MANIFEST)]
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
        part.replace(target)
    except OSError as error:
        raise UsageError(f"{making.order.out}: cannot be written ({error.strerror}); choose another place") from error
    finally:
        part.unlink(missing_ok=True)
    return verdict


def _evidence(making: _Making) -> Iterator[tuple[str, EvidenceKind, Iterator[bytes]]]:
    """Each file of evidence by its name in the archive, redacted; what is left out is noted."""
    files = evidence_files(making.order.paths, (making.order.out, making.order.map_file))
    for done, path in enumerate(files):
        if making.progress:
            making.progress(done, len(files), path)
        for found in open_evidence(path, making.order.paths):
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
    """Evidence as it is in the archive, for a reader; what has been read has been written."""
    for name, kind, redacted in _evidence(making):
        with writer.member(name) as member:
            passing = Passing(redacted, member)
            yield clean(name), passing.buffered()
            passing.pass_rest()
        making.inside.append(Inside(name, kind, member.size, member.sha256))


def _judge(making: _Making, capture: Capture) -> Verdict:
    """The verdict comes from redacted evidence, so a shortened line or stack cannot hold half a secret."""
    return in_other_words(diagnose(capture, making.order.source, picture=True), making.redactor.redact)


def _add_whole(making: _Making, writer: TarWriter, name: str, data: bytes) -> None:
    writer.add_whole(name, data)
    making.inside.append(Inside(name, _kind(name), len(data), hashlib.sha256(data).hexdigest()))


def _kind(name: str) -> str:
    return "doctor" if name.startswith("doctor/") else "made by forkpoint"


def _write_map(path: str, bundle: str, names: dict[str, str]) -> None:
    """For this machine and its owner only: mode 0600."""
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
