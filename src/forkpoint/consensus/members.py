"""Who takes part in an agreement, and where its tensors live."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from forkpoint.consensus.errors import NotAMember
from forkpoint.consensus.torch_inside import device_kinds, is_outsider


@dataclass(frozen=True, slots=True)
class Members:
    group: dist.ProcessGroup | None
    """None: torch.distributed is not initialised, a world of one."""

    @property
    def rank(self) -> int:
        """Global number of this process."""
        return 0 if self.group is None else dist.get_rank()

    @property
    def ranks(self) -> tuple[int, ...]:
        """Global, in the group's order."""
        return (0,) if self.group is None else tuple(dist.get_process_group_ranks(self.group))

    @property
    def size(self) -> int:
        return 1 if self.group is None else self.group.size()

    @property
    def device(self) -> torch.device:
        """CPU where the group can: a decision on the GPU makes the host wait for everything queued there."""
        assert self.group is not None
        kinds = device_kinds(self.group)
        if not kinds or "cpu" in kinds:
            return torch.device("cpu")
        bound = self.group.bound_device_id
        return bound or torch.device(kinds[0], torch.get_device_module(kinds[0]).current_device())


def members_of(group: dist.ProcessGroup | None) -> Members:
    if not dist.is_initialized():
        return Members(None)
    if group is not None and is_outsider(group):
        raise NotAMember(
            f"rank {dist.get_rank()} is not in this group, so it cannot agree with it: "
            "`new_group` gave it no group; only members may come here"
        )
    return Members(group or dist.group.WORLD)
