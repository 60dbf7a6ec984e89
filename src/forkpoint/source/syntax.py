"""Small questions to pieces of syntax."""

import ast
from collections.abc import Iterator

from forkpoint.source.code import Function


def argument_for(name: str, call: ast.Call, function: Function) -> ast.expr | None:
    """The argument a call passes for a parameter, if it does so plainly."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if any(isinstance(a, ast.Starred) for a in call.args) or name not in function.params:
        return None
    bound = function.owner is not None and not is_static(function)
    place = function.params.index(name) - (1 if bound else 0)
    return call.args[place] if 0 <= place < len(call.args) else None


def annotation_of(name: str, function: Function) -> ast.expr | None:
    if isinstance(function.node, ast.Module):
        return None
    a = function.node.args
    return next((p.annotation for p in (*a.posonlyargs, *a.args, *a.kwonlyargs) if p.arg == name), None)


def last_word(expr: ast.expr) -> str:
    """`model` of `self.model`, `trainer.model` and `model`; of a call, the function's."""
    return called_name(expr.func if isinstance(expr, ast.Call) else expr)


def called_name(expr: ast.expr) -> str:
    if isinstance(expr, ast.Attribute):
        return expr.attr
    return expr.id if isinstance(expr, ast.Name) else ""


def is_super(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and expr.func.id == "super"


def is_static(function: Function) -> bool:
    return any(called_name(d) == "staticmethod" for d in function.decorators())


def is_property(function: Function) -> bool:
    return any(called_name(d) in {"property", "cached_property"} for d in function.decorators())


def is_abstract(function: Function) -> bool:
    """Only a docstring, `pass`, `...` or `raise NotImplementedError`."""
    for statement in function.body:
        plain = isinstance(statement, ast.Pass) or (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        )
        if not plain and not (isinstance(statement, ast.Raise) and "NotImplemented" in ast.dump(statement)):
            return False
    return True


def assignments(function: Function) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in function.own.assignments:
        match node:
            case ast.Assign():
                for target in node.targets:
                    yield from _pairs(target, node.value)
            case ast.AnnAssign() if node.value is not None:
                yield node.target, node.value
            case ast.NamedExpr():
                yield node.target, node.value
            case ast.withitem() if node.optional_vars is not None:
                yield node.optional_vars, node.context_expr
            case _:
                pass


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


def receiver_fits(receiver: ast.expr, words: tuple[str, ...]) -> bool:
    parts = last_word(receiver).lower().strip("_").split("_")
    return not words or any(part.rstrip("s") == word for part in parts for word in words)


def is_mask(index: ast.expr) -> bool:
    return (
        isinstance(index, ast.Compare)
        or (isinstance(index, ast.Call) and last_word(index) == "bool")
        or (isinstance(index, ast.Name) and index.id.endswith("mask"))
        or (isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.Invert))
    )


def is_minus_one(expr: ast.expr) -> bool:
    return isinstance(expr, ast.UnaryOp) and isinstance(expr.operand, ast.Constant) and expr.operand.value == 1


def all_arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(k.value for k in call.keywords)]


def bound_names(target: ast.expr) -> list[str]:
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]


def shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below, in the order of source, without what stands in functions, classes and lambdas inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield child
            yield from own_nodes(child)
