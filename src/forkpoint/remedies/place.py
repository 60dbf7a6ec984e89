"""Where and how code is inserted into a file."""

import ast
import re
from collections.abc import Sequence

from forkpoint.remedies.edit import TextEdit, end_of, insertion
from forkpoint.source.code import Module


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
