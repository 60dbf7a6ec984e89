"""What was gathered: where from, how large, of when, and what is wrong with it. Schema `forkpoint.collect/1`."""

import json
from dataclasses import dataclass

from forkpoint.collect.kinds import FileKind

SCHEMA = "forkpoint.collect/1"
NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class Copied:
    file: str
    """In the folder, relative to it."""
    place: str
    """As it was asked for, or `here`."""
    origin: str
    """The path, or the name under which the place gave it."""
    kind: FileKind
    size: int
    modified: float | None
    """Seconds since 1970, of the original. None: the place does not tell."""
    sha256: str
    cut: str | None = None
    """What is missing of the original: it did not fit, or its place stopped sending."""
    growing: bool = False
    """The original was written to while it was copied."""
    truncated: str | None = None
    """For dumps: where it ends early."""
    stale: str | None = None
    """Why it is not of this run."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a place could not give."""

    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Manifest:
    files: tuple[Copied, ...]
    notes: tuple[Note, ...]
    taken_at: str
    """UTC."""


def render_manifest(manifest: Manifest) -> str:
    """ASCII, without a final newline."""
    document = {
        "schema": SCHEMA,
        "taken_at": manifest.taken_at,
        "files": [
            {
                "file": copied.file,
                "place": copied.place,
                "origin": copied.origin,
                "kind": copied.kind,
                "bytes": copied.size,
                "modified": copied.modified,
                "sha256": copied.sha256,
                "cut": copied.cut,
                "growing": copied.growing,
                "truncated": copied.truncated,
                "stale": copied.stale,
            }
            for copied in manifest.files
        ],
        "notes": [{"place": note.place, "text": note.text} for note in manifest.notes],
    }
    return json.dumps(document, indent=2).replace("\x7f", "\\u007f")
