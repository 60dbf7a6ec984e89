"""What is in a bundle, and what was taken out. Schema `forkpoint.bundle/1`."""

import json
from dataclasses import dataclass

from forkpoint.model.capture import Problem
from forkpoint.model.verdict import Verdict
from forkpoint.report.json_report import SCHEMA as VERDICT_SCHEMA

SCHEMA = "forkpoint.bundle/1"
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Inside:
    name: str
    kind: str
    size: int | None
    """Unpacked. None: not made yet, since this is a dry run."""
    sha256: str | None = None
    """Of what is unpacked. None in a dry run."""


@dataclass(frozen=True, slots=True)
class Bundle:
    inside: tuple[Inside, ...]
    left_out: tuple[Problem, ...]
    removed: tuple[tuple[str, int], ...]
    """What was replaced in the evidence, and how often."""
    names: dict[str, str]
    """Originals by pseudonym."""
    verdict: Verdict | None
    """As the archive tells it. None in a dry run."""


def render_contents(bundle: Bundle) -> str:
    """ASCII, without a final newline: the archive's manifest, which does not list itself, and what `--json` prints."""
    document = {
        "schema": SCHEMA,
        "verdict_schema": VERDICT_SCHEMA,
        "files": [
            {"name": item.name, "kind": item.kind, "bytes": item.size, "sha256": item.sha256} for item in bundle.inside
        ],
        "left_out": [{"name": problem.file, "why": problem.text} for problem in bundle.left_out],
        "removed": dict(bundle.removed),
    }
    return json.dumps(document, indent=2).replace("\x7f", "\\u007f")
