"""A value on the other side of the number it is compared with."""

import sys
from types import FrameType
from typing import Any

_HOPS = 8


def across(value: Any, operator: str, bound: float) -> Any:
    """The nearest plain value of the same type for which `value operator bound` turns out otherwise."""
    whole = isinstance(value, int)
    step = 1 if whole else max(abs(bound), 1.0) * 1e-3
    edge = int(bound) if whole else bound
    holds = {
        "<": value < bound, "<=": value <= bound, ">": value > bound, ">=": value >= bound,
        "==": value == bound, "!=": value != bound,
    }[operator]  # fmt: skip
    if operator in ("==", "!="):
        return edge + step if value == bound else type(value)(edge)
    up = holds == (operator in ("<", "<="))
    return type(value)(edge + step if up else edge - step)


def look_up_bound(bound: str) -> float | None:
    """A number, or what a dotted name stands for in the frame of the user's code that is asking. Only plain attributes are
    followed: nothing of the program is run.
    """
    try:
        return float(bound)
    except ValueError:
        pass
    value = _find(bound.split("."), _asking_frame())
    return float(value) if isinstance(value, int | float) else None


def _asking_frame() -> FrameType | None:
    """The first frame outside of forkpoint."""
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
