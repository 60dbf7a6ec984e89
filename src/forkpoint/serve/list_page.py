"""The pages besides the report: the list of incidents, and a sentence where there is no report."""

import time
from collections.abc import Sequence
from html import escape as as_html
from pathlib import Path

from forkpoint.report.escape import escape
from forkpoint.report.html.bounds import MAX_LONG_TEXT, MAX_TEXT, bounded
from forkpoint.report.html.live import Live, write_live
from forkpoint.report.html.page import write_policy
from forkpoint.serve.diagnosis import IncidentPage
from forkpoint.serve.watch import ShownIncident

WELCOME = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'; form-action 'none'">
<meta http-equiv="refresh" content="0; url=/">
<title>forkpoint</title>
<p><a href="/">On to the report</a></p>
"""
"""Redirects to the start page, without the token in the address."""

_HEADINGS = ("Incident", "Cause", "Suspects", "Confidence", "Last seen", "What happened")


def render_list(root: str, incidents: Sequence[ShownIncident], left_out: int, events: str) -> str:
    head = "".join(f'<th scope="col">{heading}</th>' for heading in _HEADINGS)
    rows = "\n".join(map(_row, incidents))
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    nothing = '<p class="faint">No evidence here yet. Files that are put there will be shown.</p>'
    more = f'<p class="faint">and {left_out} older ones: serve a folder with fewer</p>' if left_out else ""
    title = f"Incidents in {_text(Path(root).name)}"
    return _page(title, f"<h1>{title}</h1>\n{table if incidents else nothing}\n{more}", events)


def render_message(title: str, text: str, events: str | None) -> str:
    """`events`: None where no news can come."""
    body = f'<h1>{_text(title)}</h1>\n<p>{_text(text, MAX_LONG_TEXT)}</p>\n<p><a href="/">All incidents</a></p>'
    return _page(_text(title), body, events)


def _row(shown: ShownIncident) -> str:
    name, result = _text(shown.folder.name), shown.result
    if not isinstance(result, IncidentPage):
        kind, says = ("problem", _text(result.why, MAX_LONG_TEXT)) if result else ("faint", "being read")
        return f'<tr><td class="name">{name}</td><td class="{kind}" colspan="{len(_HEADINGS) - 1}">{says}</td></tr>'
    cells = (
        ("name", f'<a href="/incidents/{shown.folder.key}">{name}</a>'),
        ("cause", _text(result.cause)),
        ("suspects", _text(result.suspects) or "-"),
        ("confidence", f"{result.confidence:.2f}"),
        ("when", _when(result.when, shown.folder.newest)),
        ("summary", _text(result.summary, MAX_LONG_TEXT)),
    )
    return "".join(["<tr>", *(f'<td class="{kind}">{cell}</td>' for kind, cell in cells), "</tr>"])


def _when(utc: str | None, newest: float) -> str:
    """What the evidence says, or else the time of its newest file, which a copy may have changed."""
    if utc:
        return _text(utc)
    return f"file of {time.strftime('%Y-%m-%d %H:%M', time.gmtime(newest))}Z"


def _page(title: str, body: str, events: str | None) -> str:
    style = Path(__file__).with_name("list.css").read_text("utf-8")
    live = "" if events is None else write_live(Live(events))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{write_policy(style, live=events is not None)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>forkpoint</header>
<main>
{body}
</main>
{live}</body>
</html>
"""


def _text(text: str, limit: int = MAX_TEXT) -> str:
    """Input as text of a page: nothing in it acts, nothing deceives."""
    return as_html(bounded(escape(text), limit))
