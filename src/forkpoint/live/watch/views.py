"""A `Sight` for people (a line, or a table that the terminal redraws) and for programs (`watch.schema.json`)."""

import json

from rich.console import Group
from rich.table import Table
from rich.text import Text

from forkpoint.live.watch.rule import GroupProgress, Sight, WatchState
from forkpoint.report.escape import escape
from forkpoint.report.json_report import Json, render_json

# ---------------------------------------------------------------------------------------------------------------------
# Sight -> a line, or a table that the terminal redraws.

_MAX_GROUPS = 12
_MAX_NOTES = 8
_STYLES = {
    WatchState.RUNNING: "green",
    WatchState.WAITING: "yellow",
    WatchState.BLIND: "magenta",
    WatchState.FOUND: "bold red",
}


def render_line(sight: Sight) -> str:
    """`01:18:27 running: rank 3 moved since the last look; 8 of 8 ranks answer`."""
    notes = "".join(f"; {note.source}: {note.text}" for note in sight.notes[:_MAX_NOTES])
    return escape(f"{_clock(sight)} {sight.state}: {sight.why.removesuffix('.')}; {_ranks(sight)}{notes}")


def draw(sight: Sight) -> Group:
    """Terminals redraw it in place."""
    head = Text.assemble(
        (sight.state, _STYLES[sight.state]),
        f"  {_ranks(sight)}, still for {sight.still_s:.0f} s  ({_clock(sight)} UTC)",
    )
    parts = [head, Text(escape(sight.why))]
    if sight.evidence:
        parts.append(Text(escape(f"forkpoint diagnose --follow-links {sight.evidence}"), style="bold"))
    notes = [Text(escape(f"{note.source}: {note.text}"), style="dim") for note in sight.notes[:_MAX_NOTES]]
    left = len(sight.notes) - _MAX_NOTES
    more = [Text(f"and {left} more notes", style="dim")] if left > 0 else []
    return Group(*parts, *([_draw_groups(sight.groups)] if sight.groups else []), *notes, *more)


def what_matters(sight: Sight) -> tuple[object, ...]:
    """Changes when there is something to report; progress alone is not."""
    why = sight.why if sight.state in (WatchState.FOUND, WatchState.BLIND) else ""
    return sight.state, why, sight.ranks_expected, sight.ranks_answering, sight.notes, sight.evidence


def _draw_groups(groups: tuple[GroupProgress, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("group", "ranks", "newest op", "behind"):
        table.add_column(heading, justify="left" if heading == "group" else "right")
    for group in groups[:_MAX_GROUPS]:
        newest = f"{group.lowest}-{group.highest}" if group.behind else f"{group.highest}"
        table.add_row(escape(group.group), f"{group.ranks}", newest, f"{group.behind}")
    if len(groups) > _MAX_GROUPS:
        table.add_row(f"and {len(groups) - _MAX_GROUPS} more", "", "", "")
    return table


def _ranks(sight: Sight) -> str:
    return f"{sight.ranks_answering} of {sight.ranks_expected or 'an unknown number of'} ranks answer"


def _clock(sight: Sight) -> str:
    return sight.at[11:19]


# ---------------------------------------------------------------------------------------------------------------------
# Sight -> one line of JSON, schema `forkpoint.watch/1` (`watch.schema.json` beside this file).

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
