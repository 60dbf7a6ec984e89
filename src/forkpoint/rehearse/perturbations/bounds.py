"""Moves a value to the other side of the threshold it is compared with."""

import ast
import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, cast

_HOPS = 8


def across(value: Any, comparison: str, bound: float) -> Any:
    """A nearby value of the same type for which `value comparison bound` has the opposite result."""
    whole = isinstance(value, int)
    step = 1 if whole else abs(bound) * 1e-3 or 1e-3
    edge = int(bound) if whole else bound
    holds = {
        "<": value < bound, "<=": value <= bound, ">": value > bound, ">=": value >= bound,
        "==": value == bound, "!=": value != bound,
    }[comparison]  # fmt: skip
    if comparison in ("==", "!="):
        return edge + step if value == bound else type(value)(edge)
    up = holds == (comparison in ("<", "<="))
    return type(value)(edge + step if up else edge - step)


def look_up_bound(bound: str) -> float | None:
    """Evaluates numbers, dotted names in the calling frame of the user's code, and simple arithmetic. Reads attributes from
    `__dict__` only, so that no code of the program runs.
    """
    try:
        return _work_out(ast.parse(bound, mode="eval").body, _asking_frame())
    except (ZeroDivisionError, OverflowError):
        return None


_ARITHMETIC: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _work_out(node: ast.expr, frame: FrameType | None) -> float | None:
    match node:
        case ast.BinOp():
            sides = _work_out(node.left, frame), _work_out(node.right, frame)
            return None if None in sides else _ARITHMETIC[type(node.op)](*cast("tuple[float, float]", sides))
        case ast.UnaryOp():
            value = _work_out(node.operand, frame)
            return None if value is None else -value
        case ast.Constant():
            return float(cast("float", node.value))
        case _:
            value = _find(ast.unparse(node).split("."), frame)
            return float(value) if isinstance(value, int | float) else None


def _asking_frame() -> FrameType | None:
    """The first frame outside forkpoint."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 documented
    while frame is not None and "/forkpoint/rehearse/" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame


def _find(names: list[str], frame: FrameType | None) -> Any:
    if frame is None:
        return None
    first, *rest = names
    value = frame.f_locals.get(first, frame.f_globals.get(first))
    for name in rest[:_HOPS]:
        value = getattr(value, "__dict__", {}).get(name)
    return value
