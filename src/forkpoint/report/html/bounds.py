"""Strings of input, short enough to carry about and valid as text."""

from forkpoint.report.escape import valid_text

MAX_TEXT = 500
"""Of a name, a path, a line of a log."""
MAX_LONG_TEXT = 2000
MAX_PATCH = 20_000


def bounded(text: str, limit: int = MAX_TEXT) -> str:
    r"""Cut with a mark that says how long it was; lone surrogates (undecodable bytes of a name) as text `\udcff`."""
    short = text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
    return valid_text(short)
