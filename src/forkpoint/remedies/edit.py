"""Edits at positions of the syntax tree, applied to the bytes of the file: everything else stays as it was."""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""Lines as Python counts them."""
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Replaces the text between two positions. Lines count from 1, columns are bytes, as in the syntax tree."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    """With `\\n` as line end, which is replaced by that of the file."""


def insertion(line: int, column: int, text: str) -> TextEdit:
    return TextEdit(line, column, line, column, text)


def replacement(node: ast.expr | ast.stmt, text: str) -> TextEdit:
    return TextEdit(node.lineno, node.col_offset, *end_of(node), text)


def wrapping(node: ast.expr, before: str, after: str) -> tuple[TextEdit, TextEdit]:
    return insertion(node.lineno, node.col_offset, before), insertion(*end_of(node), after)


def end_of(node: ast.expr | ast.stmt | ast.excepthandler) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def edited(data: bytes, edits: Iterable[TextEdit]) -> bytes:
    """Edits must not overlap; those at the same position keep their order."""
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
    """The line end of the first line."""
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
