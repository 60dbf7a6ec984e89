"""Logs, stacks, kernel messages, archives and dumps: paths in, a `Capture` out. `reading.py` is the way in."""

from forkpoint.evidence.reading import (
    ADMIT_BY_PROOF,
    TEXT_SUFFIXES,
    WAY_OUT,
    Choice,
    Progress,
    Reading,
    read,
    read_files,
    read_stream,
)

__all__ = [
    "ADMIT_BY_PROOF",
    "TEXT_SUFFIXES",
    "WAY_OUT",
    "Choice",
    "Progress",
    "Reading",
    "read",
    "read_files",
    "read_stream",
]
