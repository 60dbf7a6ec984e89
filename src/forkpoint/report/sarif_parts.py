"""What every SARIF 2.1.0 document of forkpoint is made of, within what GitHub code scanning takes.

Its limits on parts: 1,000 locations in a result, of which it keeps 100; 255 characters of a rule's name and 1,024 of its
descriptions.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from forkpoint import __version__

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
    return json.dumps(document, indent=1).replace("\x7f", "\\u007f")


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
    # Undecodable bytes of a name as text `\udcff`: strict parsers refuse them raw.
    name = file.encode("utf-8", "backslashreplace").decode("utf-8")
    path = Path(os.path.relpath(name or "unknown"))
    return Path(name).absolute().as_uri() if ".." in path.parts else quote(path.as_posix())
