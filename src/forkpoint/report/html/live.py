"""What a page has besides when it is served: a script that hears of news. A page on disk has none of it."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Live:
    events: str
    """The address to listen at, on the same server. Put in as it is."""
    home: str | None = None
    """That of the list of incidents, if there is one. Put in as it is."""


@cache
def live_script() -> str:
    return (files("forkpoint") / "web" / "live.js").read_text("utf-8")


def write_live(live: Live) -> str:
    """The elements that belong to the end of the body."""
    return f'<script type="text/plain" id="live">{live.events}</script>\n<script>{live_script()}</script>\n'
