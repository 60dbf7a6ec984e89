"""Shapes of live stacks: what a rank that does not come is doing."""

import re

from forkpoint.model.op import Stack

_COMMUNICATION = ("torch/distributed/", "torch/nn/parallel/", "torch/nn/functional/all_reduce")
_STORAGE = re.compile(
    r"upload|download|save|write|read|open|flush|fsync|checkpoint|fetch|socket|http|s3|mount", re.IGNORECASE
)


def is_communicating(stack: Stack) -> bool:
    """Its innermost frames are inside torch.distributed: it waits for others, it does not stall by itself."""
    return any(part in frame.filename for frame in stack[:3] for part in _COMMUNICATION)


def is_in_storage(stack: Stack) -> bool:
    """Some function on the stack reads or writes, as far as names tell."""
    return any(_STORAGE.search(frame.name) for frame in stack)
