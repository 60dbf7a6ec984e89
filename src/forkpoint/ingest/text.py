"""Text from anyone: made harmless and short before it is kept."""

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_ANSI = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")
LIMIT = 300


def without_escapes(text: str) -> str:
    """Without the colours that terminals understand."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def clean(text: str, limit: int = LIMIT) -> str:
    """One line without escapes or control characters, cut to `limit`."""
    text = _CONTROL.sub("", without_escapes(text)).replace("\n", " ").strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
