"""What was gathered: where from, how large, how old, and what is wrong with it. Schema `forkpoint.collect/1`."""

import msgspec

from forkpoint.collect.kinds import FileKind

MANIFEST_NAME = "manifest.json"


class Copied(msgspec.Struct, frozen=True):
    """One file of the folder."""

    file: str
    """Relative to the folder."""
    place: str
    """As it was asked for, or `here`."""
    origin: str
    """The path, or the name under which the place gave it."""
    kind: FileKind
    size: int = msgspec.field(name="bytes")
    modified: float | None
    """Seconds since 1970, of the original. None: unknown."""
    sha256: str
    cut: str | None = None
    """What is missing of the original: it did not fit, or its place stopped sending."""
    growing: bool = False
    """The original was written to while it was copied."""
    truncated: str | None = None
    """For dumps: where it ends early."""
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
