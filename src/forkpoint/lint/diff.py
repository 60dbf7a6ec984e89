"""Changes -> a unified diff that `git apply` takes, in the bytes of the files themselves."""

import os
import re
from collections.abc import Iterator
from difflib import diff_bytes, unified_diff

from forkpoint.lint.edits import Change

_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
"""As git counts lines, whatever else ends one for Python."""
_NO_END = b"\n\\ No newline at end of file\n"


def render_diff(change: Change) -> bytes:
    """Names are relative to the current folder: apply it there."""
    name = os.path.relpath(change.file).replace(os.sep, "/")
    lines = diff_bytes(
        unified_diff,
        _LINE.findall(change.before),
        _LINE.findall(change.after),
        _name(f"a/{name}"),
        _name(f"b/{name}"),
    )
    return b"".join(line if line.endswith(b"\n") else line + _NO_END for line in lines)


def _name(path: str) -> bytes:
    """As git writes it: quoted where a byte would end the name, and with a tab behind a name with a space."""
    raw = os.fsencode(path)
    if any(byte < 0x20 or byte in b'"\\\x7f' for byte in raw):
        return b'"' + b"".join(_quoted(raw)) + b'"'
    return raw + (b"\t" if b" " in raw else b"")


def _quoted(raw: bytes) -> Iterator[bytes]:
    for byte in raw:
        if byte in b'"\\':
            yield b"\\" + bytes([byte])
        else:
            yield b"\\%03o" % byte if byte < 0x20 or byte >= 0x7F else bytes([byte])
