"""Verdict -> one self-contained HTML file: opens from disk, loads nothing, runs only its own script."""

import base64
import re
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape as as_html
from importlib.resources import files

from msgspec import Struct

from forkpoint.model.verdict import Verdict
from forkpoint.report.escape import escape
from forkpoint.report.fork_svg import draw_fork, render_share
from forkpoint.report.page_data import bounded, encode, render_document

# ---------------------------------------------------------------------------------------------------------------------
# Additions for a page that is served: a script that listens for updates. A page on disk does not have it.


class Live(Struct, frozen=True):
    events: str
    """The URL of the event stream, on the same server. Inserted without escaping."""
    home: str | None = None
    """The URL of the list of incidents, if there is one. Inserted without escaping."""


@cache
def live_script() -> str:
    return (files("forkpoint") / "web" / "live.js").read_text("utf-8")


def write_live(live: Live) -> str:
    """The elements for the end of the body."""
    return f'<script type="text/plain" id="live">{live.events}</script>\n<script>{live_script()}</script>\n'


# ---------------------------------------------------------------------------------------------------------------------
# The page without data: HTML, style and script of the front end, with a security policy that allows only these.

_MARK = re.compile("@@([A-Z]+)@@")
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src '{style}'; img-src data:; base-uri 'none'; form-action 'none'"
)


class Page(Struct, frozen=True):
    html: str
    """With a placeholder like `@@STYLE@@` for each part."""
    style: str
    script: str


def read_page() -> Page:
    web = files("forkpoint") / "web"
    names = (web / "js" / "order.txt").read_text("utf-8").split()
    script = "".join((web / "js" / name).read_text("utf-8") for name in names)
    return Page((web / "page.html").read_text("utf-8"), (web / "page.css").read_text("utf-8"), script)


def fill(html: str, parts: Mapping[str, str]) -> str:
    """Replaces marks like `@@STYLE@@`. In one pass: a mark inside inserted content stays text."""
    return _MARK.sub(lambda mark: parts[mark[1]], html)


def write_policy(style: str, *scripts: str, live: bool) -> str:
    """Allows only this style and these scripts; for a live page also the stream from its own server."""
    allowed = " ".join(f"'{_hash(script)}'" for script in ((*scripts, live_script()) if live else scripts))
    return _POLICY.format(scripts=allowed or "'none'", style=_hash(style)) + ("; connect-src 'self'" if live else "")


def _with_live(html: str, live: Live) -> str:
    link = f'<a class="quiet" href="{live.home}">All incidents</a>\n' if live.home else ""
    return html.replace("</header>", f"{link}</header>", 1).replace("</body>", f"{write_live(live)}</body>", 1)


def _hash(text: str) -> str:
    """The hash by which a Content-Security-Policy allows one script or style."""
    return f"sha256-{_base64(sha256(text.encode()).digest())}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


# ---------------------------------------------------------------------------------------------------------------------
# Verdict -> page. The front end (`forkpoint/web`) is inserted unchanged; the verdict and its picture are embedded as data.


def render_html(verdict: Verdict, page: Page | None = None, live: Live | None = None, seen: Sequence[str] = ()) -> str:
    """Everything from input is ASCII: escaped inside JSON, or compressed in base64. `page`: another front end.

    `live`: for a page that is served, which reloads when there is an update. `seen`: lines about earlier incidents.
    """
    page = page or read_page()
    parts = {
        "CSP": write_policy(page.style, page.script, live=live is not None),
        "TITLE": f"forkpoint: {verdict.cause}",
        "STYLE": page.style,
        "SCRIPT": page.script,
        "VERDICT": render_document(verdict),
        "PICTURE": _base64(encode(verdict.picture)) if verdict.picture else "",
        "FORK": draw_fork(verdict),
        "SHARE": _base64(render_share(verdict).encode("ascii")),
        "SEEN": _seen(seen),
    }
    return fill(page.html if live is None else _with_live(page.html, live), parts)


def _seen(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    first, *rest = (
        as_html(bounded(escape(line))).encode("ascii", "xmlcharrefreplace").decode("ascii") for line in lines
    )
    items = "".join(f"<li>{line}</li>" for line in rest)
    return f'<section id="seen" aria-labelledby="seen-h"><h2 id="seen-h">Seen before</h2><p>{first}</p><ul>{items}</ul></section>'
