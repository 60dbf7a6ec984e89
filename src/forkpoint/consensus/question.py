"""What the ranks of a group are asked, all of them the same."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch.distributed as dist

from forkpoint.consensus.members import Members, members_of

TIMEOUT_S = 300.0
"""Half of NCCL's own 600 s. Longer than a checkpoint or an evaluation on one rank should take, and early enough that
the error with names comes before the watchdog, which ends the process without them."""

_issued: WeakKeyDictionary[dist.ProcessGroup, int] = WeakKeyDictionary()
"""The only thing kept between calls: how many collectives this package has issued in each group."""


@dataclass(frozen=True, slots=True)
class Question:
    kind: str
    """The function that asks."""
    what: str | None
    """What is being agreed, in the user's words."""
    members: Members
    timeout_s: float
    number: int
    """Its place among the group's agreements."""

    def __str__(self) -> str:
        return f"{self.what!r} ({self.kind})" if self.what else self.kind

    @property
    def label(self) -> str:
        """Equal on all members, or they are not in the same place of the program."""
        return f"agreement {self.number}, {self}"


def question(kind: str, what: str | None, group: dist.ProcessGroup | None, timeout_s: float) -> Question:
    members = members_of(group)
    return Question(kind, what, members, timeout_s, 1 + issued(members.group))


def count(group: dist.ProcessGroup) -> None:
    _issued[group] = issued(group) + 1


def issued(group: dist.ProcessGroup | None) -> int:
    return 0 if group is None else _issued.get(group, 0)
