"""The page without data: document, style and script of the front end, put together with a policy that allows no more."""

import base64
import re
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

_MARK = re.compile("@@(CSP|TITLE|STYLE|SCRIPT|VERDICT|PICTURE)@@")
_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, slots=True)
class Page:
    html: str
    """With a mark like `@@STYLE@@` where each part belongs."""
    style: str
    script: str


def read_page() -> Page:
    web = files("forkpoint") / "web"
    names = (web / "js" / "order.txt").read_text("utf-8").split()
    script = "".join((web / "js" / name).read_text("utf-8") for name in names)
    return Page((web / "page.html").read_text("utf-8"), (web / "page.css").read_text("utf-8"), script)


def assemble(page: Page, title: str, verdict: str, picture: str) -> str:
    """`title`, `verdict` and `picture` are put in as they are: already escaped."""
    parts = {
        "CSP": _POLICY.format(script=_hash(page.script), style=_hash(page.style)),
        "TITLE": title,
        "STYLE": page.style,
        "SCRIPT": page.script,
        "VERDICT": verdict,
        "PICTURE": picture,
    }
    # In one pass: a mark inside what is put in stays text.
    return _MARK.sub(lambda mark: parts[mark[1]], page.html)


def _hash(text: str) -> str:
    """As a Content-Security-Policy names the one script or style that may act."""
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode('ascii')}"
