"""Reports <-> JSON, schema `forkpoint.lint/1` (`lint.schema.json` beside this file); rules -> JSON."""

import inspect
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from forkpoint.lint.catalogue import AnyRule
from forkpoint.lint.rule import LintReport, Related, Violation
from forkpoint.report.escape import json_text, valid_text
from forkpoint.source import SourceNote

SCHEMA = "forkpoint.lint/1"
RULES_SCHEMA = "forkpoint.rules/1"

_Place = TypeVar("_Place", Violation, Related, SourceNote)


def render_json(report: LintReport) -> str:
    """One ASCII document without a final newline. Source is data: nothing in it can act on a terminal."""
    violations = [replace(_valid(found), related=tuple(map(_valid, found.related))) for found in report.violations]
    named = replace(report, violations=tuple(violations), notes=tuple(map(_valid, report.notes)))
    return json_text({"schema": SCHEMA, **msgspec.to_builtins(named)})


def _valid(place: _Place) -> _Place:
    return replace(place, file=valid_text(place.file))


def read_json(document: str) -> LintReport:
    """The inverse. Raises msgspec.MsgspecError, KeyError, TypeError or ValueError where the document is not one of ours."""
    row = json.loads(document)
    if row["schema"] != SCHEMA:
        raise ValueError(f"not a document of schema {SCHEMA}")
    return msgspec.convert(row, LintReport)


def render_rules_json(rules: Sequence[AnyRule]) -> str:
    """Rules as one ASCII document, schema `forkpoint.rules/1`."""
    rows = [
        {
            "code": rule.code,
            "title": rule.title,
            "advisory": rule.advisory,
            "doc": inspect.cleandoc(rule.doc),
            "found_in": rule.found_in,
            "silent_in": rule.silent_in,
        }
        for rule in rules
    ]
    return json_text({"schema": RULES_SCHEMA, "rules": rows})
