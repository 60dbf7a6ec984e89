"""How many collectives this process has issued: one number that only grows."""

import torch.distributed as dist

from forkpoint.consensus.question import issued
from forkpoint.consensus.torch_inside import groups, sequence_number


def collectives_issued() -> int:
    """Over all groups that count, without those of this package."""
    if not dist.is_initialized():
        return 0
    counted = [(group, sequence_number(group)) for group in groups()]
    return sum(number - issued(group) for group, number in counted if number is not None)
