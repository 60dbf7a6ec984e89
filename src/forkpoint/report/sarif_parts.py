"""What every SARIF 2.1.0 document of forkpoint is made of, within what GitHub code scanning takes.

Its limits on parts: 1,000 locations in a result, of which it keeps 100; 255 characters of a rule's name and 1,024 of its
descriptions.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from forkpoint import __version__
from forkpoint.report.escape import ascii_json, valid_text

MAX_RELATED = 100
MAX_NAME = 255
MAX_DESCRIPTION = 1024

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

Row = dict[str, Any]


def render_run(rules: Sequence[Row], results: Sequence[Row], notifications: Sequence[Row]) -> str:
    """One ASCII document with one run."""
    run = {
        "tool": {"driver": {"name": "forkpoint", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}],
        "results": results,
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return ascii_json(document, indent=1)


def place(file: str, region: Row | None = None, **more: Any) -> Row:
    """A location."""
    physical: Row = {"artifactLocation": {"uri": _uri(file)}}
    return {"physicalLocation": physical if region is None else {**physical, "region": region}, **more}


def notification(text: str) -> Row:
    return {"level": "warning", "message": {"text": text}}


def plain(text: str) -> str:
    """Without what SARIF would take for a link."""
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")


def _uri(file: str) -> str:
    """Relative to the current folder, which should be the repository's; absolute for what lies outside."""
    name = valid_text(file)
    path = Path(os.path.relpath(name or "unknown"))
    return Path(name).absolute().as_uri() if ".." in path.parts else quote(path.as_posix())
