"""`f(a, b)` -> `other(..., f, a, b)`: pass a function and its arguments to another function."""

import ast

from forkpoint.remedies.edit import TextEdit, end_of, insertion
from forkpoint.source.code import Module


def handed_over(call: ast.Call, before: str, module: Module) -> tuple[TextEdit, ...]:
    """`before` is the start of the new call, with its first arguments. Empty if the call has an unusual form."""
    line, column = end_of(call.func)
    if module.lines[line - 1][column : column + 1] != b"(":
        return ()
    comma = ", " if call.args or call.keywords else ""
    glue = "" if before.endswith("(") else ", "
    opened = insertion(call.lineno, call.col_offset, f"{before}{glue}")
    return opened, TextEdit(line, column, line, column + 1, comma)
