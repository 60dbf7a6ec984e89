"""In the training process: says within seconds that ranks no longer agree, long before the watchdog's timeout.

    FORKPOINT=1 torchrun train.py            # no code changes

    import forkpoint.guard
    forkpoint.guard.start()                  # the same, from code

A thread reads torch's own recorder and compares it with the other ranks over a separate store connection. If there is a
reason to look closer, it asks all ranks for their dumps and stacks and has them diagnosed in another process. It never
touches the job's communicators, and whatever fails in it, training goes on.
"""

from contextlib import AbstractContextManager

from forkpoint.guard.overseer import Alarm, RanksParted
from forkpoint.guard.session import Status, start, status, step, stop
from forkpoint.guard.settings import Mode, Settings


def vote(timeout_s: float = 60.0) -> AbstractContextManager[None]:
    """A vote before every collective, for a debugging run (guard/voting.py)."""
    from forkpoint.guard.voting import vote as open_vote  # noqa: PLC0415 loads torch's dispatch modes: 70 MB

    return open_vote(timeout_s)


__all__ = ["Alarm", "Mode", "RanksParted", "Settings", "Status", "start", "status", "step", "stop", "vote"]
