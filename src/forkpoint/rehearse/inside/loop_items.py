"""What the loops of the user's code give to their bodies, as far as it is the same text on two ranks."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast
from zlib import crc32

_DEEP: Final = 3


class LoopItems:
    """What a loop gave to its body, for `PathFile`: a number for a text, an integer, or a tuple with one."""

    def __init__(self) -> None:
        self._files: dict[str, dict[int, tuple[str, ...]]] = {}

    def item(self, frame: FrameType) -> int:
        """0: this is not the first line of a loop's body, or the item is data."""
        file = frame.f_code.co_filename
        if file not in self._files:
            self._files[file] = dict(_first_lines(file))
        names = self._files[file].get(frame.f_lineno)
        if names is None:
            return 0
        told = [value for name in names if (value := _plainly(frame.f_locals.get(name))) is not None]
        return crc32("\n".join(told).encode(errors="replace")) or 1 if told else 0


def _first_lines(file: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and node.body[0].lineno > node.lineno:
            yield node.body[0].lineno, tuple(n.id for n in ast.walk(node.target) if isinstance(n, ast.Name))


def _plainly(value: Any, depth: int = 0) -> str | None:
    """None: a tensor or another object, which is not the same text on two ranks."""
    if isinstance(value, str | int):
        return repr(value)
    if isinstance(value, tuple) and depth < _DEEP:
        parts = [_plainly(part, depth + 1) for part in cast("tuple[Any, ...]", value)]
        return None if None in parts else repr(parts)
    return None
