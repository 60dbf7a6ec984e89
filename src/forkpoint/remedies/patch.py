"""A file before and after -> a unified diff for `git apply`, in the bytes of the file."""

import re
from difflib import diff_bytes, unified_diff

_AS_GIT_COUNTS = re.compile(rb"[^\n]*\n|[^\n]+")
_OPEN_END = b"\n\\ No newline at end of file\n"
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')


def unified(name: str, before: bytes, after: bytes) -> bytes:
    """`name` is relative to the folder in which the diff is applied, with forward slashes."""
    old, new = (_AS_GIT_COUNTS.findall(text) for text in (before, after))
    diff = diff_bytes(unified_diff, old, new, header_name(f"a/{name}"), header_name(f"b/{name}"))
    return b"".join(line if line.endswith(b"\n") else line + _OPEN_END for line in diff)


def header_name(path: str) -> bytes:
    """Quoted as git does it. A name with spaces is followed by a tab, which marks its end."""
    raw = path.encode("utf-8", "surrogateescape")
    if all(byte in _PLAIN for byte in raw):
        return raw + b"\t" if b" " in raw else raw
    return b'"%s"' % b"".join(bytes([byte]) if byte in _PLAIN else b"\\%03o" % byte for byte in raw)
