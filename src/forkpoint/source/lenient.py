"""Text -> syntax tree, also of files that this Python cannot parse as a whole: what it cannot read is left out.

Line numbers stay those of the file. Newer syntax is rewritten if that is simple (type parameters, `type` statements,
template strings), other statements that do not parse become `pass`.
"""

import ast
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAX_DEPTH = 90
"""Nesting of blocks and expressions. Deeper code is generated, and would overflow the stack of recursive functions."""
_ELIF = 1 / 4
"""Depth of an `elif`: the tree nests it in the one before, the source does not."""
_MAX_LEFT_OUT = 40
"""Maximum number of statements left out. A file with more that do not parse is not written in any known version of
Python.
"""
_GENERIC = re.compile(r"^(\s*(?:async\s+def|def|class)\s+\w+)\[")
_ALIAS = re.compile(r"^(\s*)type\s+(\w+)\s*(\[.*\])?\s*=(?!=)")
_TEMPLATE = re.compile(r"""(?<![\w"'])([rR]?)[tT]([rR]?)(?=["'])""")
_EXCEPT = re.compile(r"^(\s*except\*?\s+)(\w[\w.]*(?:\s*,\s*\w[\w.]*)+)(\s*:)")


@dataclass(frozen=True, slots=True)
class Parsed:
    tree: ast.Module
    left_out: tuple[int, ...]
    """First lines of statements that are not in the tree."""
    why: str
    """Python's message about the first of them."""


def without_deep_parts(parsed: Parsed) -> Parsed:
    """Only for the few files that have such parts: looking for them takes as long as parsing."""
    cut = _cut_deep(parsed.tree)
    return Parsed(parsed.tree, (*parsed.left_out, *cut), parsed.why or f"nested more than {MAX_DEPTH} deep")


def parse_leniently(text: str, path: str) -> Parsed:
    """Raises what `ast.parse` raises if too little of the file can be read."""
    try:
        return Parsed(ast.parse(text, path), (), "")
    except SyntaxError as error:
        # `except A, B` was Python 2 before it was Python 3.14; a `print` without parentheses settles it.
        if "Missing parentheses in call" in str(error):
            raise
        first = error
    lines = [_in_older_syntax(line) for line in text.split("\n")]
    left_out: list[int] = []
    while len(left_out) <= _MAX_LEFT_OUT:
        try:
            tree = ast.parse("\n".join(lines), path)
        except SyntaxError as error:
            at = _leave_out(lines, error, path)
            if at is None or at in left_out:
                break
            left_out.append(at)
            continue
        if all(isinstance(statement, ast.Pass) for statement in tree.body):
            break
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return Parsed(tree, tuple(left_out), f"Python {version}: {first.msg}" if left_out else "")
    raise first


def _in_older_syntax(line: str) -> str:
    line = _ALIAS.sub(r"\1\2 =", line)
    line = _EXCEPT.sub(r"\1(\2)\3", line)
    line = _TEMPLATE.sub(r"\1f\2", line)
    generic = _GENERIC.match(line)
    if generic is None:
        return line
    end = _closing(line, generic.end() - 1)
    return line if end is None else generic[1] + line[end + 1 :]


def _closing(line: str, start: int) -> int | None:
    depth = 0
    for place in range(start, len(line)):
        depth += (line[place] == "[") - (line[place] == "]")
        if depth == 0:
            return place
    return None


def _leave_out(lines: list[str], error: SyntaxError, path: str) -> int | None:
    """Replaces the smallest part around the error after which the file parses further; returns its first line, counted
    from 1.
    """
    line = min(error.lineno or 1, len(lines))
    for first, last in _parts_around(lines, line - 1):
        changed = [*lines]
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        changed[first : last + 1] = [f"{indent}pass", *[""] * (last - first)]
        if _parses_to(changed, path) > line:
            lines[:] = changed
            return first + 1
    return None


def _parts_around(lines: Sequence[str], at: int) -> list[tuple[int, int]]:
    """The line, then the surrounding blocks from the inside out, each with what is indented below its head."""
    parts = [(at, at)]
    indent = _indent(lines[at])
    for first in range(at - 1, -1, -1):
        if lines[first].strip() and (_indent(lines[first]) < indent or (indent == 0 and len(parts) == 1)):
            indent = _indent(lines[first])
            parts.append((first, _end_of_block(lines, first, max(at, first))))
            if indent == 0:
                break
    return parts


def _end_of_block(lines: Sequence[str], first: int, at: int) -> int:
    last = at
    while last + 1 < len(lines) and (not lines[last + 1].strip() or _indent(lines[last + 1]) > _indent(lines[first])):
        last += 1
    return last


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _parses_to(lines: Sequence[str], path: str) -> int:
    """The line of the first error; beyond the end if there is none."""
    try:
        ast.parse("\n".join(lines), path)
    except SyntaxError as error:
        return error.lineno or 0
    return len(lines) + 1


def _cut_deep(tree: ast.Module) -> list[int]:
    """Replaces statements that are nested too deeply by `pass`."""
    cut: list[int] = []
    pending: list[tuple[ast.AST, float, Callable[[], int]]] = [(tree, 0, lambda: 0)]
    while pending:
        node, depth, leave_out = pending.pop()
        if depth > MAX_DEPTH:
            line = leave_out()
            cut += [line] if line else []
            continue
        for name, value in ast.iter_fields(node):
            if not isinstance(value, list):
                if isinstance(value, ast.AST):
                    pending.append((value, depth + 1, leave_out))
                continue
            for place, child in enumerate(value):
                if isinstance(child, ast.stmt):
                    is_elif = isinstance(node, ast.If) and name == "orelse" and len(value) == 1
                    pending.append((child, depth + (_ELIF if is_elif else 1), _replacing(value, place)))
                elif isinstance(child, ast.AST):
                    pending.append((child, depth + 1, leave_out))
    return sorted(cut)


def _replacing(block: list[ast.stmt], place: int) -> Callable[[], int]:
    statement = block[place]

    def leave_out() -> int:
        if block[place] is not statement:
            return 0
        block[place] = ast.copy_location(ast.Pass(), statement)
        return statement.lineno

    return leave_out
