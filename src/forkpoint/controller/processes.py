"""The ranks' processes as the kernel shows them: who has ended, and who went first. Children of this process only.

Monarch tells of a death after some seconds; the kernel at once. (Not how it ended: Monarch collects the exit code.)
"""

import os
import select
import signal
import threading
from collections.abc import Iterable
from contextlib import suppress

from forkpoint.controller.answers import Death, Hello


class RankProcesses:
    """A pidfd names one process for ever: no other that gets its number later is watched, or killed."""

    def __init__(self, hellos: Iterable[Hello]) -> None:
        own = [hello for hello in hellos if hello.parent == os.getpid()]
        self._handles = {os.pidfd_open(hello.pid): hello.rank for hello in own}
        self._deaths: list[Death] = []
        self._watch = threading.Thread(target=self._watch_all, name="forkpoint-processes", daemon=True)
        self._watch.start()

    @property
    def count(self) -> int:
        return len(self._handles)

    def deaths(self) -> tuple[Death, ...]:
        """Those so far, in order."""
        return tuple(self._deaths)

    def kill(self) -> None:
        """Ends those that still run. A signal that cannot be caught: they may stand in a collective for ever."""
        for handle in self._handles:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)

    def close(self, limit_s: float) -> None:
        """Waits until all have ended."""
        self._watch.join(limit_s)
        if not self._watch.is_alive():
            for handle in self._handles:
                os.close(handle)
            self._handles.clear()

    def _watch_all(self) -> None:
        """A pidfd can be read once its process has ended."""
        poll = select.poll()
        for handle in self._handles:
            poll.register(handle, select.POLLIN)
        while len(self._deaths) < len(self._handles):
            ended = [handle for handle, _ in poll.poll()]
            moment = len(self._deaths)
            self._deaths += [Death(self._handles[handle], "", moment) for handle in ended]
            for handle in ended:
                poll.unregister(handle)
