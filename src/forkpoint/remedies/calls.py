"""`f(a, b)` -> `other(..., f, a, b)`: the call is handed over, with its arguments as they are written."""

import ast

from forkpoint.remedies.edit import Edit, end_of, insertion
from forkpoint.source.code import Module


def handed_over(call: ast.Call, before: str, module: Module) -> tuple[Edit, ...]:
    """`before` opens the other call and may give it arguments. Empty where the call is written in an unusual way."""
    line, column = end_of(call.func)
    if module.lines[line - 1][column : column + 1] != b"(":
        return ()
    comma = ", " if call.args or call.keywords else ""
    glue = "" if before.endswith("(") else ", "
    opened = insertion(call.lineno, call.col_offset, f"{before}{glue}")
    return opened, Edit(line, column, line, column + 1, comma)
