"""What the guard of this process can see, for those who ask from inside."""

from dataclasses import dataclass

from forkpoint.guard.overseer import Alarm
from forkpoint.guard.switch import running_thread


@dataclass(frozen=True, slots=True)
class Status:
    running: bool
    blind: str
    """Why it cannot hear the other ranks; "" = it can."""
    alarms: tuple[Alarm, ...]
    """Rank 0 alone has them."""


def status() -> Status:
    thread = running_thread()
    if thread is None:
        return Status(running=False, blind="not started", alarms=())
    session = thread.session
    blind = thread.died or (session.blind if session else "no process group yet")
    return Status(running=not thread.died, blind=blind, alarms=tuple(session.alarms) if session else ())
