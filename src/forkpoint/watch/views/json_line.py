"""Sight -> one line of JSON, schema `forkpoint.watch/1` (`watch.schema.json` beside this file)."""

import json

from forkpoint.report.json_report import Json, render_json
from forkpoint.watch.sight import GroupProgress, Sight

SCHEMA = "forkpoint.watch/1"


def render_json_line(sight: Sight) -> str:
    """ASCII, without a final newline. The verdict is the document of `diagnose --json`."""
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "at": sight.at,
        "state": sight.state,
        "why": _valid(sight.why),
        "is_alarm": sight.is_alarm,
        "ranks": {"expected": sight.ranks_expected or None, "answering": sight.ranks_answering},
        "still_s": round(sight.still_s, 1),
        "groups": [_group(group) for group in sight.groups],
        "notes": [{"source": note.source, "text": _valid(note.text)} for note in sight.notes],
        "evidence": sight.evidence,
        "verdict": json.loads(render_json(sight.verdict)) if sight.verdict else None,
    }
    return json.dumps(document).replace("\x7f", "\\u007f")


def _group(group: GroupProgress) -> Json:
    return {
        "group": _valid(group.group),
        "ranks": group.ranks,
        "lowest": group.lowest,
        "highest": group.highest,
        "behind": group.behind,
    }


def _valid(text: str) -> str:
    r"""Lone surrogates (undecodable bytes of a file name) as text `\udcff`: strict parsers refuse them raw."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
