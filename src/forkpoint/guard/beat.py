"""What one rank tells the others at every look, and how it travels."""

from dataclasses import dataclass
from enum import StrEnum


class RankHealth(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    """Its program ended, or took its process groups down."""
    RAISED = "raised"
    """Its program ends with an exception."""
    STOPPED = "stopped"
    """Its process is there and does not run (SIGSTOP). Told by a rank of the same host."""
    GONE = "gone"
    """Its process is no longer there. Told by a rank of the same host."""


@dataclass(frozen=True, slots=True)
class GroupBeat:
    """Of one group. Its key is its name and its members, for the same name may mean other members elsewhere."""

    size: int
    completed: int
    last_seq: int
    """The newest call, recorded or counted: recorded ones are ahead while their rank is still inside the enqueue."""
    timeout_s: float

    @property
    def waits_at(self) -> int | None:
        """The call that is not done; None without one."""
        return self.completed + 1 if self.last_seq > max(self.completed, 0) else None


@dataclass(frozen=True, slots=True)
class Calls:
    """What a rank called lately. Most of what it has to tell, so it is told only when it was read anew."""

    rank: int
    reads: int
    """One higher each time."""
    tails: dict[str, dict[int, int]]
    """By group: token by seq."""
    blocks: dict[str, dict[int, int]]
    """By group: signature by number of the block."""
    steps: dict[int, dict[str, int]]
    """How many calls each group had at the end of a step, for steps told with `guard.step`."""


@dataclass(frozen=True, slots=True)
class Beat:
    rank: int
    number: int
    """One higher each time: a rank whose number stands still tells nothing."""
    state: RankHealth
    says: str
    """The exception it ends with."""
    still_s: float
    """How long nothing has moved here, by this rank's own clock."""
    calling: str
    """The torch.distributed call its main thread stands in."""
    groups: dict[str, GroupBeat]
    reads: int
    """Of the calls that go with it."""
    neighbour: int | None = None
    """The next rank of the same host, whose process this one looks at."""
    neighbour_state: RankHealth = RankHealth.RUNNING

    @property
    def is_waiting(self) -> bool:
        return self.state is RankHealth.RUNNING and (
            bool(self.calling) or any(g.waits_at is not None for g in self.groups.values())
        )
