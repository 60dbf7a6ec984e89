"""What is in a bundle, and what was removed. Schema `forkpoint.bundle/1`."""

from dataclasses import dataclass

import msgspec

from forkpoint.model.capture import Problem
from forkpoint.model.verdict import Verdict
from forkpoint.report.json_report import SCHEMA as VERDICT_SCHEMA
from forkpoint.report.json_text import json_text

BUNDLE_SCHEMA = "forkpoint.bundle/1"
MANIFEST = "manifest.json"


class Inside(msgspec.Struct, frozen=True):
    """One member of the archive."""

    name: str
    kind: str
    size: int | None = msgspec.field(name="bytes")
    """Unpacked. None in a dry run, for what was not made."""
    sha256: str | None = None
    """Of the unpacked file. None in a dry run."""


class LeftOutFile(msgspec.Struct, frozen=True):
    name: str
    why: str


class Contents(msgspec.Struct, frozen=True, tag_field="schema", tag=BUNDLE_SCHEMA):
    """The archive's manifest, which does not list itself."""

    verdict_schema: str
    files: tuple[Inside, ...]
    left_out: tuple[LeftOutFile, ...]
    removed: dict[str, int]


@dataclass(frozen=True, slots=True)
class Bundle:
    inside: tuple[Inside, ...]
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
