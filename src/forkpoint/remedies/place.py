"""Where in a file something can be put, and in what words."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from forkpoint.remedies.edit import Edit, end_of, insertion
from forkpoint.source.code import Function, Module

_BLOCKS = ("body", "orelse", "finalbody")
_MAX_TEXT = 80


@lru_cache(maxsize=64)
def _parents(root: ast.AST) -> dict[ast.AST, ast.AST]:
    """Kept for the functions that are looked at now: each is asked about dozens of times."""
    return {child: node for node in ast.walk(root) for child in ast.iter_child_nodes(node)}


def ancestors(node: ast.AST, function: Function) -> Iterator[tuple[ast.AST, ast.AST]]:
    """(what stands around, what of it holds the node), innermost first."""
    above = _parents(function.node)
    while node in above:
        yield above[node], node
        node = above[node]


def statement_of(node: ast.AST, function: Function) -> ast.stmt | None:
    """The statement that holds an expression; a statement is its own."""
    if isinstance(node, ast.stmt):
        return node
    return next((outer for outer, _ in ancestors(node, function) if isinstance(outer, ast.stmt)), None)


def block_of(statement: ast.stmt, function: Function) -> list[ast.stmt]:
    """The statements among which it stands."""
    around = next((outer for outer, _ in ancestors(statement, function)), function.node)
    blocks = (getattr(around, name, []) for name in _BLOCKS)
    return next((b for b in blocks if isinstance(b, list) and statement in b), [])


def indent_of(node: ast.stmt | ast.expr, module: Module) -> str | None:
    """None: other code stands before it on its line."""
    before = module.lines[node.lineno - 1][: node.col_offset]
    return None if before.strip() else before.decode()


def line_before(statement: ast.stmt, text: str, module: Module) -> Edit:
    """A line of its own, or, where the statement shares its line, in front of it."""
    indent = indent_of(statement, module)
    first = getattr(statement, "decorator_list", None) or [statement]
    if indent is None:
        return insertion(statement.lineno, statement.col_offset, f"{text.partition('  #')[0]}; ")
    return insertion(first[0].lineno, 0, f"{indent}{text}\n")


def definitions(module: Module, texts: Sequence[str]) -> Edit:
    """Functions of their own, behind the imports at the top: whatever runs later finds them."""
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
    """The number of lines up to the end of the first imports."""
    line = 0
    for place, statement in enumerate(module.tree.body):
        leads = isinstance(statement, ast.Import | ast.ImportFrom) or (place == 0 and _is_docstring(statement))
        if not leads and statement.lineno != line:
            break
        line = end_of(statement)[0]
    return line


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."


def free_name(name: str, module: Module) -> str:
    """One that the module does not use yet."""
    while re.search(rf"\b{name}\b", module.text):
        name += "_"
    return name


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Without those of functions and classes defined in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield child
            yield from own_nodes(child)


def names_in(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def names_set_in(nodes: Sequence[ast.stmt]) -> set[str]:
    return {
        n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
    }
