"""Modules, classes and functions of user code, and the parser that makes them from text."""

import ast
import math
from dataclasses import dataclass, field
from pathlib import PurePath

from forkpoint.source.lenient import MAX_DEPTH, Parsed, parse_leniently, without_deep_parts

# ---------------------------------------------------------------------------------------------------------------------
# Modules, classes and functions of user code, as parsed.

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
    left_out: tuple[int, ...] = ()
    """First lines of statements that could not be parsed."""
    why_left_out: str = ""
    deepest: float = math.inf
    """How deep code may nest before the file is read again without its deep parts."""
    lines: list[bytes] = field(default_factory=list)
    """In bytes, because columns of the syntax tree count bytes."""

    @property
    def top(self) -> "Function":
        return self.functions["<module>"]

    def source(self, node: ast.expr | ast.stmt) -> str:
        """The source text, on one line."""
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
    rounds: tuple[ast.For | ast.AsyncFor | ast.comprehension, ...]


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


# ---------------------------------------------------------------------------------------------------------------------
# Text -> Module: imports, classes and functions in one pass.

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LEAVES = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop)


def parse_module(path: str, name: str, text: str) -> Module:
    """Raises SyntaxError, ValueError (NUL bytes), RecursionError or MemoryError, as `ast.parse` does, if nearly nothing
    of the file can be read.
    """
    parsed = parse_leniently(text, path)
    try:
        return _module(path, name, text, parsed, MAX_DEPTH)
    except _TooDeepError:
        return _module(path, name, text, without_deep_parts(parsed), math.inf)


class _TooDeepError(Exception):
    pass


def _module(path: str, name: str, text: str, parsed: Parsed, deepest: float) -> Module:
    tree = parsed.tree
    module = Module(
        path,
        name,
        text,
        tree,
        left_out=parsed.left_out,
        why_left_out=parsed.why,
        deepest=deepest,
        lines=text.encode("utf-8", "replace").splitlines(),
    )
    module.functions["<module>"] = _function(module, "<module>", tree, None, None)
    _define(module, tree.body, "", None, None)
    for function in module.functions.values():
        _import(module, function.own.imports)
    return module


def _import(module: Module, nodes: tuple[ast.Import | ast.ImportFrom, ...]) -> None:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                module.imports[bound] = alias.name if alias.asname else bound
            continue
        base = _base(module, node)
        for alias in node.names:
            if alias.name == "*":
                module.stars.append(base)
            else:
                module.imports[alias.asname or alias.name] = f"{base}.{alias.name}".strip(".")


def _base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    is_package = PurePath(module.path).name == "__init__.py"
    parts = module.name.split(".")
    kept = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _define(module: Module, body: list[ast.stmt], prefix: str, owner: Class | None, outer: Function | None) -> None:
    """Functions and classes of a block, including those inside `if`, `try` and `with`."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{statement.name}"
            function = _function(module, name, statement, owner, outer)
            # The last definition of a name counts, unless it is an overload or a property setter.
            if not (name in module.functions and _is_variant(statement)):
                module.functions[name] = function
                if owner is not None:
                    owner.methods[statement.name] = function
            _define(module, statement.body, f"{name}.", None, function)
        elif isinstance(statement, ast.ClassDef):
            cls = Class(module, f"{prefix}{statement.name}", statement)
            module.classes[cls.name] = cls
            _define(module, statement.body, f"{cls.name}.", cls, outer)
        else:
            for block in _blocks(statement):
                _define(module, block, prefix, owner, outer)


def _is_variant(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [d.attr if isinstance(d, ast.Attribute) else getattr(d, "id", "") for d in node.decorator_list]
    return any(name in {"setter", "deleter", "overload", "register"} for name in names)


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    blocks += [handler.body for handler in getattr(statement, "handlers", [])]
    blocks += [case.body for case in getattr(statement, "cases", [])]
    return blocks


def _function(module: Module, name: str, node: FunctionNode, owner: Class | None, outer: Function | None) -> Function:
    params: tuple[str, ...] = ()
    if not isinstance(node, ast.Module):
        a = node.args
        params = tuple(p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs))
    return Function(module, name, node, owner, outer, params, _own_nodes(node, module.deepest))


def children(node: ast.AST) -> list[ast.AST]:
    """Like `ast.iter_child_nodes`, in half the time: without `ctx` and operators, of which there are as many as names."""
    found: list[ast.AST] = []
    for name in node._fields:
        part = getattr(node, name, None)
        if isinstance(part, list):
            found += [inner for inner in part if isinstance(inner, ast.AST)]  # pyright: ignore[reportUnknownVariableType]
        elif isinstance(part, ast.AST) and not isinstance(part, _LEAVES):
            found.append(part)
    return found


def _own_nodes(node: ast.AST, deepest: float) -> OwnNodes:
    """Iterative: this runs over every node of the program."""
    calls: list[ast.Call] = []
    assignments: list[Assignment] = []
    returns: list[ast.Return] = []
    imports: list[ast.Import | ast.ImportFrom] = []
    rounds: list[ast.For | ast.AsyncFor | ast.comprehension] = []
    pending = [(child, 1) for child in children(node)][::-1]
    while pending:
        child, depth = pending.pop()
        if isinstance(child, _NESTED):
            continue
        if depth > deepest:
            raise _TooDeepError
        if isinstance(child, ast.Call):
            calls.append(child)
        elif isinstance(child, Assignment):
            assignments.append(child)
        elif isinstance(child, ast.Return):
            returns.append(child)
        elif isinstance(child, ast.Import | ast.ImportFrom):
            imports.append(child)
        elif isinstance(child, ast.For | ast.AsyncFor | ast.comprehension):
            rounds.append(child)
        depth += 1
        pending.extend([(inner, depth) for inner in children(child)][::-1])
    return OwnNodes(tuple(calls), tuple(assignments), tuple(returns), tuple(imports), tuple(rounds))
