"""Who takes part in an agreement, and the question, which is the same for all of them."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from forkpoint.consensus.errors import NotAMember
from forkpoint.consensus.torch_inside import device_kinds, is_outsider

# ---------------------------------------------------------------------------------------------------------------------
# Who takes part in an agreement, and where its tensors live.


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
        """CPU if the group supports it: a decision on the GPU makes the host wait for everything queued there."""
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
            "`new_group` gave it no group; only members may call this"
        )
    return Members(group or dist.group.WORLD)


# ---------------------------------------------------------------------------------------------------------------------
# The question, which is the same for all members.

TIMEOUT_S = 300.0
"""Half of NCCL's own 600 s. Longer than a checkpoint or an evaluation on one rank should take, and early enough that the
error that names ranks comes before the watchdog, which ends the process without naming any."""

_issued: WeakKeyDictionary[dist.ProcessGroup, int] = WeakKeyDictionary()
"""The only thing kept between calls: how many collectives this package has issued in each group."""


@dataclass(frozen=True, slots=True)
class Question:
    kind: str
    """The function that asks."""
    what: str | None
    """What is being agreed on, in the user's words."""
    members: Members
    timeout_s: float
    number: int
    """Its place among the group's agreements."""

    def __str__(self) -> str:
        return f"{self.what!r} ({self.kind})" if self.what else self.kind

    @property
    def label(self) -> str:
        """If it differs between members, they are not at the same place in the program."""
        return f"agreement {self.number}, {self}"


def question(kind: str, what: str | None, group: dist.ProcessGroup | None, timeout_s: float) -> Question:
    members = members_of(group)
    return Question(kind, what, members, timeout_s, 1 + issued(members.group))


def count(group: dist.ProcessGroup) -> None:
    _issued[group] = issued(group) + 1


def issued(group: dist.ProcessGroup | None) -> int:
    return 0 if group is None else _issued.get(group, 0)
