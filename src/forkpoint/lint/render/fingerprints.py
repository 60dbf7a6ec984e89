"""The hash by which GitHub knows an alert again when lines above it move.

GitHub's upload action works it out from the source and warns where a file says something else, so this is the same
function: a polynomial over the first 100 characters from the line's start, blanks left out, and a count that tells
equal places apart. Uploads that go past the action need it here.
"""

from collections import Counter
from pathlib import Path

_BLOCK = 100
_FACTOR = 37
_END = "\uffff"
_BLANKS = str.maketrans("", "", " \t")


class LineHashes:
    """Reads each file once, when it is first asked for."""

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}

    def of(self, file: str, line: int) -> str | None:
        """None where the file has gone or has become shorter."""
        if file not in self._files:
            self._files[file] = _hashes_in(file)
        hashes = self._files[file]
        return hashes[line - 1] if 0 < line <= len(hashes) else None


def line_hashes(text: str) -> list[str]:
    """Of each line, in order."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").translate(_BLANKS).split("\n")
    whole = "\n".join(lines) + _END
    # GitHub counts in UTF-16 units, two for a character beyond the basic plane.
    units = whole.encode("utf-16-le", "surrogatepass") + b"\0\0" * _BLOCK
    seen: Counter[bytes] = Counter()
    hashes: list[str] = []
    start = 0
    for line in lines:
        block = units[start : start + 2 * _BLOCK]
        seen[block] += 1
        hashes.append(f"{_polynomial(block):x}:{seen[block]}")
        start += len(line.encode("utf-16-le", "surrogatepass")) + 2
    return hashes


def _polynomial(block: bytes) -> int:
    value = 0
    for at in range(0, len(block), 2):
        value = value * _FACTOR + block[at] + 256 * block[at + 1]
    return value & 0xFFFF_FFFF_FFFF_FFFF


def _hashes_in(file: str) -> list[str]:
    try:
        return line_hashes(Path(file).read_bytes().decode("utf-8", "replace"))
    except OSError:
        return []
