"""Modules, classes and functions of user code, as parsed."""

import ast
from dataclasses import dataclass, field

Assignment = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr | ast.withitem
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


@dataclass(slots=True, eq=False)
class Module:
    path: str
    name: str
    """Dotted, starting at the outermost package above the file."""
    text: str
    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    """Local name -> dotted name. `import a.b` binds `a`; relative imports are resolved."""
    stars: list[str] = field(default_factory=list)
    """Modules imported with `*`."""
    functions: dict[str, "Function"] = field(default_factory=dict)
    """By qualified name; the top-level code of the module is `<module>`."""
    classes: dict[str, "Class"] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    """In bytes, because columns of the syntax tree count bytes."""

    @property
    def top(self) -> "Function":
        return self.functions["<module>"]

    def source(self, node: ast.expr | ast.stmt) -> str:
        """As written, on one line."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        lines = self.lines[first : last + 1]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b" ".join(lines).decode("utf-8", "replace").split())

    def function_at(self, line: int) -> "Function | None":
        """The innermost function whose body contains the line; None beyond the end of the file."""
        inside = [f for f in self.functions.values() if f is not self.top and f.contains(line)]
        if inside:
            return max(inside, key=lambda f: f.line)
        return self.top if line <= len(self.lines) else None


@dataclass(slots=True, eq=False)
class Class:
    module: Module
    name: str
    node: ast.ClassDef
    methods: dict[str, "Function"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnNodes:
    """Nodes of a function in source order, without nested functions and classes. Lambdas and comprehensions are included."""

    calls: tuple[ast.Call, ...]
    assignments: tuple[Assignment, ...]
    returns: tuple[ast.Return, ...]
    imports: tuple[ast.Import | ast.ImportFrom, ...]


@dataclass(slots=True, eq=False)
class Function:
    module: Module
    name: str
    """`Trainer.fit`, `main`, `outer.inner`, `<module>`."""
    node: FunctionNode
    owner: Class | None
    """The class, if it is a method."""
    outer: "Function | None"
    """The function around it."""
    params: tuple[str, ...]
    """Positional ones first, then keyword-only ones; including `self`."""
    own: "OwnNodes"

    @property
    def calls(self) -> tuple[ast.Call, ...]:
        return self.own.calls

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 1)

    @property
    def body(self) -> list[ast.stmt]:
        return self.node.body

    def contains(self, line: int) -> bool:
        return bool(self.body) and self.body[0].lineno <= line <= (self.body[-1].end_lineno or 0)

    def decorators(self) -> list[ast.expr]:
        return [] if isinstance(self.node, ast.Module) else self.node.decorator_list


def spelled(expr: ast.expr) -> str | None:
    """`self.model.loss`: a name with its attributes. None for anything else."""
    if isinstance(expr, ast.Name):
        return expr.id
    if isinstance(expr, ast.Attribute):
        base = spelled(expr.value)
        return f"{base}.{expr.attr}" if base else None
    return None
