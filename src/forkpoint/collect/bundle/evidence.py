"""The files behind the paths, archives member by member, as streams that are read once."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from pathlib import Path
from typing import BinaryIO, cast

from forkpoint.errors import UsageError
from forkpoint.ingest.files import SNIFF, STDIN, find_files, is_archive
from forkpoint.ingest.flight_recorder import looks_like_dump
from forkpoint.ingest.logs.archives import open_members
from forkpoint.model.capture import Problem

MAP_SCHEMA = "forkpoint.map/1"


class EvidenceKind(StrEnum):
    TEXT = auto()
    DUMP = auto()


@dataclass(frozen=True, slots=True)
class FoundEvidence:
    path: str
    """Its path, or its name inside an archive; relative to the path that the user gave."""
    kind: EvidenceKind
    stream: BinaryIO


def evidence_files(paths: Sequence[str], unless: Sequence[str]) -> list[str]:
    """`unless`: files that are written now. Raises UsageError."""
    if STDIN in paths:
        raise UsageError("bundle reads evidence more than once: save standard input to a file first")
    own = {str(Path(path).resolve()) for path in unless}
    return [path for path in find_files(paths) if str(Path(path).resolve()) not in own]


def open_evidence(path: str, roots: Sequence[str]) -> Iterator[FoundEvidence | Problem]:
    """Read each before you take the next."""
    try:
        with io.BufferedReader(io.FileIO(path), SNIFF) as stream:
            if not is_archive(stream.peek(SNIFF)[:SNIFF]):
                yield _told_apart(stream, _relative(path, roots))
                return
            for member in open_members(cast("BinaryIO", stream), path):
                if isinstance(member, Problem):
                    yield Problem(_relative(member.file, roots), member.text)
                else:
                    inside = io.BufferedReader(cast("io.FileIO", member.stream), SNIFF)
                    yield _told_apart(inside, _relative(member.name, roots))
    except OSError as error:
        yield Problem(_relative(path, roots), f"cannot be read ({error.strerror}); check its permissions")


def _told_apart(stream: "io.BufferedReader[io.FileIO]", path: str) -> FoundEvidence | Problem:
    head = stream.peek(SNIFF)[:SNIFF]
    if MAP_SCHEMA.encode() in head[:100]:
        return Problem(path, "a map of pseudonyms: it must not leave this machine")
    if looks_like_dump(head):
        return FoundEvidence(path, EvidenceKind.DUMP, cast("BinaryIO", stream))
    if b"\x00" in head:
        return Problem(path, "neither a dump nor text: it cannot be redacted")
    return FoundEvidence(path, EvidenceKind.TEXT, cast("BinaryIO", stream))


def _relative(path: str, roots: Sequence[str]) -> str:
    """From the last folder that was asked for on; the folder of a single file may tell its rank."""
    for root in roots:
        if path == root or path.startswith(f"{root.rstrip('/')}/"):
            above = Path(root).resolve() if Path(root).is_dir() else Path(root).resolve().parent
            inside = path[len(root) :] if Path(root).is_dir() else f"/{Path(root).name}{path[len(root) :]}"
            return f"{above.name}/{inside.lstrip('/')}"
    return Path(path).name
