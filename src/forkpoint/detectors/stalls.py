"""Shapes of live stacks: what a rank that does not come is doing."""

from forkpoint.model.op import Stack

_COMMUNICATION = ("torch/distributed/", "torch/nn/parallel/", "torch/nn/functional/all_reduce")
_LEAVING = ("destroy_process_group",)


def is_communicating(stack: Stack) -> bool:
    """Its innermost frames are inside torch.distributed: it waits for others, it does not stall by itself."""
    return any(part in frame.filename for frame in stack[:3] for part in _COMMUNICATION)


def is_leaving(stack: Stack) -> bool:
    return any(frame.name in _LEAVING for frame in stack)
