"""Edits at positions of the syntax tree, applied to the bytes of the file, and the unified diff for `git apply`."""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import diff_bytes, unified_diff

from forkpoint.source.code import Module

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


# ---------------------------------------------------------------------------------------------------------------------
# A file before and after -> a unified diff for `git apply`, in the bytes of the file.

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


def handed_over(call: ast.Call, before: str, module: Module) -> tuple[TextEdit, ...]:
    """`f(a, b)` -> `other(..., f, a, b)`. `before` is the start of the new call, with its first arguments. Empty if the call has an unusual form."""
    line, column = end_of(call.func)
    if module.lines[line - 1][column : column + 1] != b"(":
        return ()
    comma = ", " if call.args or call.keywords else ""
    glue = "" if before.endswith("(") else ", "
    opened = insertion(call.lineno, call.col_offset, f"{before}{glue}")
    return opened, TextEdit(line, column, line, column + 1, comma)


def indent_of(node: ast.stmt | ast.expr, module: Module) -> str | None:
    """None if other code precedes it on its line."""
    before = module.lines[node.lineno - 1][: node.col_offset]
    return None if before.strip() else before.decode()


def line_before(statement: ast.stmt, text: str, module: Module) -> TextEdit:
    """On a line of its own, or before the statement if that shares its line with another."""
    indent = indent_of(statement, module)
    first = getattr(statement, "decorator_list", None) or [statement]
    if indent is None:
        return insertion(statement.lineno, statement.col_offset, f"{text.partition('  #')[0]}; ")
    return insertion(first[0].lineno, 0, f"{indent}{text}\n")


def definitions(module: Module, texts: Sequence[str]) -> TextEdit:
    """Function definitions, after the imports at the top of the file."""
    line = _after_imports(module)
    below = [bool(text.strip()) for text in module.lines[line : line + 2]]
    blank = 0 if not below or below[0] else 1 if len(below) < 2 or below[1] else 2
    joined = "\n\n\n".join(text.strip() for text in texts)
    if any(text.startswith(b"\t") for text in module.lines):
        joined = re.sub(r"^(?: {4})+", lambda m: "\t" * (len(m[0]) // 4), joined, flags=re.MULTILINE)
    lead = "\n\n" if line else ""
    open_end = "\n" if line == len(module.lines) and line and not module.text.endswith("\n") else ""
    return insertion(line + 1, 0, f"{open_end}{lead}{joined}\n{'' if not below else chr(10) * (2 - blank)}")


def _after_imports(module: Module) -> int:
    """The last line of the imports at the top."""
    line = 0
    for place, statement in enumerate(module.tree.body):
        leads = isinstance(statement, ast.Import | ast.ImportFrom) or (place == 0 and _is_docstring(statement))
        if not leads and statement.lineno != line:
            break
        line = end_of(statement)[0]
    return line


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def free_name(name: str, module: Module) -> str:
    """A name that the module does not use yet."""
    while re.search(rf"\b{name}\b", module.text):
        name += "_"
    return name
