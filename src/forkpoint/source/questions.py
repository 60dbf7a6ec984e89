"""What an expression asks: whether something is empty, which process this is, one entry of a mapping."""

import ast
from dataclasses import replace
from typing import TypeGuard

from forkpoint.source.apis import Origin, is_rank_word
from forkpoint.source.syntax import last_word
from forkpoint.source.value import Value

_OF_ALL_ITEMS = frozenset({Origin.LOCAL_DATA, Origin.TIME, Origin.TIMING, Origin.MEMORY})
"""If one of these differs, it differs in all of its entries."""


def item_name(container: str, key: ast.Constant) -> str:
    """The key under which an item of a container is kept beside the variables."""
    return f"{container}[{key.value!r}]"


def asks_for_a_rank(node: ast.Compare) -> bool:
    """`rank < 0`, `rank >= 0`."""
    to_zero = [c for c in node.comparators if isinstance(c, ast.Constant) and c.value == 0]
    return is_rank_word(last_word(node.left)) and bool(to_zero) and isinstance(node.ops[0], ast.Lt | ast.GtE)


_OF_RANKS = frozenset({"dist", "distributed", "comm", "communicator", "world", "process", "gang", "ranks"})


def asks_for_the_root(node: ast.Attribute) -> bool:
    """`dist.is_root()`; of a tree or a wrapped module it is another root."""
    return node.attr == "is_root" and bool(set(last_word(node.value).lower().strip("_").split("_")) & _OF_RANKS)


def asked_for_emptiness(node: ast.Compare) -> ast.expr | None:
    """`x` of `x.numel() == 0`, `x.shape[0] == 0`, `x.size(0) > 0`, `x.sum() == 0` and `len(x) == 0`."""
    compared = node.comparators[0]
    if len(node.ops) != 1 or not (isinstance(compared, ast.Constant) and compared.value == 0):
        return None
    match node.left:
        case ast.Call(func=ast.Attribute(attr="numel" | "nelement" | "size" | "sum") as func):
            return func.value
        case ast.Call(func=ast.Name(id="len"), args=[counted]):
            return counted
        case ast.Subscript(value=ast.Attribute(attr="shape") as shape):
            return shape.value
        case _:
            return None


def is_text(expr: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(expr, ast.Constant) and isinstance(expr.value, str)


def of_one_item(value: Value, key: ast.Constant) -> Value:
    """`config["steps"]`: that another entry of the mapping depends on the rank or on an exception says nothing about
    this one.
    """
    named = is_rank_word(str(key.value))
    kept = frozenset(r for r in value.content if r.origin in _OF_ALL_ITEMS or (named and r.origin is Origin.RANK))
    return value if len(kept) == len(value.content) else replace(value, content=kept)
