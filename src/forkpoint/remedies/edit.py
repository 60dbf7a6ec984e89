"""Edits at places of the syntax tree, applied to the file's own bytes: line ends and the rest stay as they were."""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""As Python counts lines."""
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Edit:
    """What stands between two places is replaced. Lines count from 1, columns are bytes, as in the tree."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    """Its own line ends are `\\n`; the file's are put in."""


def insertion(line: int, column: int, text: str) -> Edit:
    return Edit(line, column, line, column, text)


def replacement(node: ast.expr | ast.stmt, text: str) -> Edit:
    return Edit(node.lineno, node.col_offset, *end_of(node), text)


def wrapping(node: ast.expr, before: str, after: str) -> tuple[Edit, Edit]:
    return insertion(node.lineno, node.col_offset, before), insertion(*end_of(node), after)


def end_of(node: ast.expr | ast.stmt | ast.excepthandler) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def edited(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Edits do not overlap; those at the same place stay in their order."""
    mark = _MARK if data.startswith(_MARK) else b""
    body = data[len(mark) :]
    lines: list[bytes] = _LINE.findall(body)
    starts = _starts(lines)
    end = line_end(lines)
    pieces: list[bytes] = [mark]
    done = 0
    for edit in sorted(edits, key=lambda e: (e.line, e.column)):
        begin = starts[edit.line - 1] + edit.column
        pieces += [body[done:begin], edit.text.replace("\n", end).encode()]
        done = starts[edit.end_line - 1] + edit.end_column
    return b"".join([*pieces, body[done:]])


def line_end(lines: Sequence[bytes]) -> str:
    """The one that the file begins with."""
    first = lines[0] if lines else b""
    return first[len(first.rstrip(b"\r\n")) :].decode() or "\n"


def normal_text(data: bytes) -> bytes:
    """With plain line ends and without a byte order mark, as the parser saw it."""
    return re.sub(rb"\r\n?", b"\n", data.removeprefix(_MARK))


def _starts(lines: Sequence[bytes]) -> list[int]:
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    return starts
