"""Which frames of a stack are the user's own."""

import re

from forkpoint.model.op import Frame, Stack

# torch wherever it is installed, the standard library, and frames without a file. Other packages in site-packages stay:
# a trainer is often installed there.
_NOT_USER_CODE = re.compile(r"/(site|dist)-packages/torch/|/lib/python3\.\d+/(?!(site|dist)-packages/)|^<")


def user_frames(stack: Stack, limit: int) -> tuple[Frame, ...]:
    """The innermost `limit` frames of user code; the innermost frame of all where there is none."""
    own = tuple(frame for frame in stack if not _NOT_USER_CODE.search(frame.filename))
    return (own or stack[:1])[:limit]
