"""Makes a bundle, or says what would be in it."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forkpoint.collect.bundle.contents import Bundle, Inside, render_contents
from forkpoint.collect.bundle.crew import Crew, crew
from forkpoint.collect.bundle.doctors import read_doctor
from forkpoint.collect.bundle.evidence import MAP_SCHEMA, Found, evidence_files, open_evidence
from forkpoint.collect.bundle.names import BundleNames
from forkpoint.collect.bundle.pieces import pieces
from forkpoint.collect.bundle.tar import TarWriter
from forkpoint.collect.bundle.words import in_other_words
from forkpoint.collect.bundle.work import Kind, LeftOut, Packed
from forkpoint.errors import UsageError
from forkpoint.ingest import Progress, read
from forkpoint.ingest.flight_recorder import MAX_BYTES
from forkpoint.ingest.text import clean
from forkpoint.model.capture import Problem
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import diagnose
from forkpoint.redact import Redactor
from forkpoint.report.html import render_html
from forkpoint.report.json_report import render_json

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
    names: BundleNames
    progress: Progress | None
    inside: list[Inside] = field(default_factory=list[Inside])
    left_out: list[Problem] = field(default_factory=list[Problem])
    removed: Counter[str] = field(default_factory=Counter[str])


def make_bundle(order: Order, progress: Progress | None = None) -> Bundle:
    """Raises UsageError, and UnreadableInput where nothing can be diagnosed."""
    redactor = Redactor.of(read(order.paths, progress))
    known = {original: name for name, original in redactor.map.items() if name.startswith(_HOSTS_AND_USERS)}
    making = _Making(order, redactor, BundleNames(redactor.redact, known), progress)
    doctors = [
        (f"doctor/{number}.json", read_doctor(path, redactor.redact)) for number, path in enumerate(order.doctors, 1)
    ]
    if order.dry_run:
        _add_evidence(making, None)
        planned = ("verdict.json", "report.html", "manifest.json")
        making.inside += [Inside(name, "doctor", len(data)) for name, data in doctors]
        making.inside += [Inside(name, "made by forkpoint", None) for name in planned]
        return _made(making, None)
    verdict = _write(making, doctors)
    _write_map(order.map_file, order.out, redactor.map)
    return _made(making, verdict)


def _made(making: _Making, verdict: Verdict | None) -> Bundle:
    removed = tuple(sorted(making.removed.items()))
    return Bundle(tuple(making.inside), tuple(making.left_out), removed, making.redactor.map, verdict)


def _write(making: _Making, doctors: Sequence[tuple[str, bytes]]) -> Verdict:
    """Readers see no archive or a whole one."""
    target = Path(os.path.realpath(making.order.out))
    part = target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        with part.open("xb") as stream:
            os.fchmod(stream.fileno(), 0o600)
            writer = TarWriter(stream, str(target.parent))
            _add_evidence(making, writer)
            stream.flush()
            verdict = _judge(making, str(part))
            made = [
                ("verdict.json", render_json(verdict).encode() + b"\n"),
                ("report.html", render_html(verdict).encode()),
            ]
            for name, data in (*doctors, *made):
                _add_whole(making, writer, name, data)
            _add_whole(making, writer, "manifest.json", render_contents(_made(making, verdict)).encode() + b"\n")
            writer.finish()
        part.replace(target)
    except OSError as error:
        raise UsageError(f"{making.order.out}: cannot be written ({error.strerror}); choose another place") from error
    finally:
        part.unlink(missing_ok=True)
    return verdict


def _add_evidence(making: _Making, writer: TarWriter | None) -> None:
    files = evidence_files(making.order.paths, (making.order.out, making.order.map_file))
    size = sum(Path(path).stat().st_size for path in files)
    with crew(making.redactor, size) as workers:
        for done, path in enumerate(files):
            if making.progress:
                making.progress(done, len(files), path)
            for found in open_evidence(path, making.order.paths):
                if isinstance(found, Problem):
                    making.left_out.append(
                        Problem(making.names.harmless(found.file), making.redactor.redact(found.text))
                    )
                else:
                    _add(making, workers, found, writer)
        making.removed += workers.counts


def _add(making: _Making, workers: Crew, found: Found, writer: TarWriter | None) -> None:
    data = pieces(found.stream) if found.kind is Kind.TEXT else iter([found.stream.read(MAX_BYTES + 1)])
    redacted = workers.redact(found.path, found.kind, data)
    name = making.names.name(found.path)
    size = writer.add(name, redacted) if writer else _size(redacted)
    if isinstance(size, LeftOut):
        making.left_out.append(Problem(name, making.redactor.redact(size.why)))
    else:
        making.inside.append(Inside(name, found.kind, size))


def _size(redacted: Iterator[Packed | LeftOut]) -> int | LeftOut:
    size = 0
    for piece in redacted:
        if isinstance(piece, LeftOut):
            return piece
        size += piece.size
    return size


def _judge(making: _Making, archive: str) -> Verdict:
    """From what is in the archive: what was cut off a line or a stack can no longer be half a secret."""
    verdict = diagnose(read([archive]), making.order.source, picture=True)
    front = f"{clean(archive)}/"
    return in_other_words(verdict, lambda text: making.redactor.redact(text.replace(front, "")))


def _add_whole(making: _Making, writer: TarWriter, name: str, data: bytes) -> None:
    writer.add_whole(name, data)
    making.inside.append(Inside(name, "doctor" if name.startswith("doctor/") else "made by forkpoint", len(data)))


def _write_map(path: str, bundle: str, names: dict[str, str]) -> None:
    """For this machine, and for its owner alone."""
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
