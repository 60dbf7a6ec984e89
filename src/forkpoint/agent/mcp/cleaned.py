"""The verdict as a peer may see it: every string of it has gone through the case's one door."""

import json
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, TypeVar, cast

from forkpoint.agent.case import Case
from forkpoint.agent.mcp.answers import VerdictOut
from forkpoint.report.escape import escape
from forkpoint.report.json_report import Json, render_json
from forkpoint.report.text import render_text

_T = TypeVar("_T")
_WIDTH = 100
_PIECE = re.compile(r"[^\n\t]+")


def verdict_as_json(case: Case) -> dict[str, Any]:
    """Schema `forkpoint.verdict/1`."""
    verdict = json.loads(render_json(case.verdict))
    return {key: _clean(case, value) for key, value in verdict.items()}


def verdict_in_short(case: Case) -> VerdictOut:
    verdict = case.verdict
    return VerdictOut(
        cause=verdict.cause,
        suspects=list(verdict.suspects),
        action=verdict.action,
        confidence=verdict.confidence,
        summary=case.clean(verdict.summary),
    )


def report_as_text(case: Case) -> str:
    """As `diagnose` prints it. Redacted before it is set in lines: half a secret would not be known for one."""
    return clean_lines(case, render_text(_redacted(case.verdict, case.redactor.redact), _WIDTH).plain)


def clean_lines(case: Case, text: str) -> str:
    """Redacted whole, since a secret may take several lines; then escaped but for line ends and tabs, which patches need."""
    return _PIECE.sub(lambda piece: escape(piece[0]), case.redactor.redact(text))


def _clean(case: Case, value: Json) -> Json:
    if isinstance(value, str):
        return clean_lines(case, value)
    if isinstance(value, list):
        return list(map(partial(_clean, case), value))
    if isinstance(value, dict):
        return {key: _clean(case, item) for key, item in value.items()}
    return value


def _redacted(value: _T, redact: Callable[[str], str]) -> _T:
    """The same value with other texts in it."""
    made: object = value
    if isinstance(value, str) and not isinstance(value, Enum):
        made = redact(value)
    elif isinstance(value, tuple):
        made = tuple(_redacted(item, redact) for item in value)
    elif is_dataclass(value) and not isinstance(value, type):
        made = replace(value, **{f.name: _redacted(getattr(value, f.name), redact) for f in fields(value)})
    return cast("_T", made)
