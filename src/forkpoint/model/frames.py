"""Which frames of a stack are the user's own."""

import re

from forkpoint.model.op import Frame, Stack

# torch wherever it is installed, the standard library, and frames without a file. Other packages in site-packages stay:
# a trainer is often installed there.
_NOT_USER_CODE = re.compile(r"/(site|dist)-packages/torch/|/lib/python3\.\d+/(?!(site|dist)-packages/)|^<")


def is_user_code(frame: Frame) -> bool:
    return not _NOT_USER_CODE.search(frame.filename)


def user_frames(stack: Stack | None) -> tuple[Frame, ...]:
    """The user's own, innermost first."""
    return tuple(frame for frame in stack or () if is_user_code(frame))


def short_name(filename: str) -> str:
    return filename.rsplit("/", 1)[-1]


def user_place(stack: Stack | None) -> str | None:
    """`train.py:40 step`: the innermost frame of user code."""
    return next((f"{short_name(f.filename)}:{f.line} {f.name}" for f in user_frames(stack)), None)
