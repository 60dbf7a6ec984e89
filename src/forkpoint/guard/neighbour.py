"""Is the next rank's process on this host still there? All that a guard can know about a rank that went silent."""

import os
from dataclasses import dataclass

from forkpoint.guard.beat import RankHealth
from forkpoint.live.processes import read_host_id, read_state


@dataclass(frozen=True, slots=True)
class Identity:
    """A process, as its rank tells it once."""

    host: str
    """Of its host and pid namespace."""
    pid: int
    started: int

    def look_at(self) -> RankHealth:
        """Only where `host` is this process's own."""
        state = read_state(self.pid)
        if state is None or state.is_dead or state.started != self.started:
            return RankHealth.GONE
        return RankHealth.STOPPED if state.is_stopped else RankHealth.RUNNING


def own_identity() -> Identity:
    state = read_state(os.getpid())
    return Identity(read_host_id() if state else "", os.getpid(), state.started if state else 0)
