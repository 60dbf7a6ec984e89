"""Text that hides its content: coloured, escaped, concatenated from parts, percent-encoded, base64."""

import base64
import binascii
import re
from collections.abc import Callable
from html import unescape
from urllib.parse import unquote

# ---------------------------------------------------------------------------------------------------------------------
# A line without colours, escapes and concatenation.

HIDING = tuple(
    re.compile(hint)
    for hint in (
        r"\x1b",
        r"\\(?=(?:x1b|033|u001b|e)\[|(?:u00|x)[2-7])",
        r"&#(?=x?[0-9])",
        r"""" {0,2}\+ {0,2}["']""",
        r"""' {0,2}\+ {0,2}["']""",
        r"""" {1,2}"(?=\w)""",
        r"""' {1,2}'(?=\w)""",
    )
)
UNSEEN = re.compile(r"[\u00ad\u200b-\u200d\u2060\ufeff]")
"""Invisible characters. Searched for only in text that is not pure ASCII."""
_COLOUR = re.compile(
    r"(?:\x1b|\\x1b|\\033|\\u001b|\\e)\[[0-9;?]{0,20}[A-Za-z]|\x1b\][^\x07\n]{0,200}\x07|[\u00ad\u200b-\u200d\u2060\ufeff]"
)
_ESCAPED = re.compile(r"\\(?:u00|x)([2-7][0-9a-fA-F])")
_ENTITY = re.compile(r"&#(?:x[0-9a-fA-F]{2}|[0-9]{2,3});")
ESCAPED_DIGITS = re.compile(r"\\(?:u00|x)[0-9a-fA-F]|&#x?[0-9]")
"""Escapes whose digits decide what is meant."""
_JOINED = re.compile(r"""(?<=[\w+/=-])["'] {0,2}\+? {0,2}["'](?=[\w+/=-])""")


def without_colours(line: str) -> str:
    """Without colours and invisible characters."""
    return _COLOUR.sub("", line)


def put_together(line: str) -> str:
    """`'abc' + 'def'` becomes `abcdef`; escaped characters are decoded."""
    if "&#" in line:
        line = _ENTITY.sub(lambda match: unescape(match[0]), line)
    return _JOINED.sub("", _ESCAPED.sub(lambda match: chr(int(match[1], 16)), line))


# ---------------------------------------------------------------------------------------------------------------------
# Encoded words.

PERCENT = re.compile("%(?=[0-9A-Fa-f]{2})")
_PERCENT_WORD = re.compile(r"""[^\s"'<>()\[\]{},;]{0,2000}%[0-9A-Fa-f]{2}[^\s"'<>()\[\]{},;]{0,2000}""")
_ROUNDS = 3
BASE64_RUN = re.compile(r"[A-Za-z0-9+/_-]{20,20000}={0,2}")
_LEAST_PRINTABLE = 0.95


def decode_percent(line: str, redact: Callable[[str], str]) -> str:
    """Decodes and redacts words in which there is something to replace; others stay as they are."""

    def decoded(match: re.Match[str]) -> str:
        word = match[0]
        for _ in range(_ROUNDS):
            word = unquote(word, errors="replace")
        after = redact(word)
        return match[0] if after == word else after.replace("\n", "%0A")

    return _PERCENT_WORD.sub(decoded, line)


def decode_base64(run: str, rounds: int = _ROUNDS) -> str | None:
    """The decoded text, also if it was encoded several times. None: it is not text."""
    try:
        held = base64.b64decode(run.rstrip("=").replace("-", "+").replace("_", "/") + "=" * (-len(run.rstrip("=")) % 4))
        text = held.decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    if sum(char.isprintable() or char in "\r\n\t" for char in text) < _LEAST_PRINTABLE * len(text):
        return None
    inner = decode_base64(text, rounds - 1) if rounds > 1 and BASE64_RUN.fullmatch(text) else None
    return text if inner is None else inner
