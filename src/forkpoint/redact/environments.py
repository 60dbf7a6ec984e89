"""Environments that a log prints: the values of variables that are not known to be harmless are masked.

A single `NAME=value` is an ordinary line; five of them in a row are a listing (`env`), also inside a JSON string, and so are three
with `export` or `declare -x` before them. So are `environ({...})`, `"env": {...}`, `"Env": ["NAME=value", ...]` as Docker writes it, and a dict with `PATH` and `HOME`. A
launcher may put the rank before each line.
"""

import re
from collections import Counter
from collections.abc import Callable

from forkpoint.knowledge.variables import may_be_shown

_FRONT = rb"(?:\[[\w.:-]{1,40}\]:? ?)?(?:export |declare -x )?"
_VARIABLE_LINE = _FRONT + rb"[A-Za-z_][A-Za-z0-9_]{0,100}=[^\n]{0,32768}"
_LISTING = re.compile(rb"\n(?:" + _VARIABLE_LINE + rb"(?:\n|\Z)){5,}")
_EXPORTS = re.compile(
    rb"\n(?:(?:\[[\w.:-]{1,40}\]:? ?)?(?:export |declare -x )[A-Za-z_][A-Za-z0-9_]{0,100}=[^\n]{0,32768}(?:\n|\Z)){3,}"
)
"""These say by themselves that they list variables."""
_VARIABLE = re.compile(rb"^(" + _FRONT + rb")([A-Za-z_][A-Za-z0-9_]{0,100})=([^\n]*)", re.MULTILINE)
_ESCAPED = re.compile(rb"(?:\\n(?:export |declare -x )?[A-Za-z_][A-Za-z0-9_]{0,100}=[^\\\n\"]{0,4096}){5,}")
_ESCAPED_VARIABLE = re.compile(rb"(\\n(?:export |declare -x )?)([A-Za-z_][A-Za-z0-9_]{0,100})=([^\\\n\"]{0,4096})")
_SHOWN = re.compile(
    rb"environ\(\{[^\n]*(?:(?<!\}\))\n[^\n']{0,60}'[A-Za-z_][A-Za-z0-9_]{0,100}': [^\n]*)*|^(?=[^\n]*'PATH': ')(?=[^\n]*'HOME': ')[^\n]*",
    re.MULTILINE,
)
"""`pprint` puts each variable on a line."""
_JSON = re.compile(rb'"[eE]nv(?:iron|ironment)?"\s{0,4}:\s{0,4}\{[^{}]{0,200000}\}')
_JSON_LIST = re.compile(rb'"[eE]nv(?:iron|ironment)?"\s{0,4}:\s{0,4}\[[^\[\]]{0,200000}\]')
_JSON_SETTING = re.compile(rb'(")([A-Za-z_][A-Za-z0-9_]{0,100})=((?:[^"\\\n]|\\.)*)(?=")')
_JSON_PAIR = re.compile(rb'"([A-Za-z_][A-Za-z0-9_]{0,100})"(\s{0,4}:\s{0,4})"((?:[^"\\\n]|\\.)*)"')
_PAIR = re.compile(rb"""'([A-Za-z_][A-Za-z0-9_]{0,100})': (?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")""")
_LISTED = re.compile(_VARIABLE_LINE + rb"\Z")
_MASK = "[masked-variable]"


def may_list(line: bytes) -> bool:
    """Whether a line may belong to a listing, or contain one."""
    return _LISTED.match(line) is not None or any(
        sign in line for sign in (b"environ({", b"'PATH': '", b'"env', b'"Env', b"\\n")
    )


def mask_environments(text: bytes, counts: Counter[str]) -> bytes:
    """Counts what it masks as `variable`."""

    def variable(match: re.Match[bytes]) -> bytes:
        return match[0] if _may_stay(match[2], match[3]) else masked(match[1] + match[2] + b"=")

    def shown(match: re.Match[bytes]) -> bytes:
        return _PAIR.sub(pair, match[0])

    def pair(match: re.Match[bytes]) -> bytes:
        return match[0] if _may_stay(match[1], b"") else masked(b"'" + match[1] + b"': ")

    def in_json(match: re.Match[bytes]) -> bytes:
        return _JSON_PAIR.sub(pair_of_json, match[0])

    def pair_of_json(match: re.Match[bytes]) -> bytes:
        kept = _may_stay(match[1], match[3])
        return match[0] if kept else masked(b'"' + match[1] + b'"' + match[2] + b'"') + b'"'

    def masked(front: bytes) -> bytes:
        counts["variable"] += 1
        return front + _MASK.encode()

    text = _in_listings(text, lambda match: _VARIABLE.sub(variable, match[0]))
    if b"\\n" in text:
        text = _ESCAPED.sub(lambda match: _ESCAPED_VARIABLE.sub(variable, match[0]), text)
    if b'"env' in text or b'"Env' in text:
        text = _JSON.sub(in_json, text)
        text = _JSON_LIST.sub(lambda match: _JSON_SETTING.sub(variable, match[0]), text)
    return _SHOWN.sub(shown, text) if b"environ({" in text or b"'PATH': '" in text else text


def _in_listings(text: bytes, masked: Callable[[re.Match[bytes]], bytes]) -> bytes:
    for listing in (_LISTING, _EXPORTS):
        if listing.search(b"\n" + text[:32768]) or listing.search(text):
            text = listing.sub(masked, b"\n" + text)[1:]
    return text


def _may_stay(name: bytes, value: bytes) -> bool:
    return value.startswith(_MASK.encode()) or may_be_shown(name.decode("ascii"))
