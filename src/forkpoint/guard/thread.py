"""The guard's thread: waits for a process group, watches it, and never gets in the way of the training."""

import atexit
import os
import threading
import time
import traceback
from itertools import count
from typing import Final

from torch.distributed import distributed_c10d

from forkpoint.guard.alarm import say
from forkpoint.guard.recorder import is_running
from forkpoint.guard.session import Session
from forkpoint.guard.settings import Settings

_LEAVE_S: Final = 12.0
"""At exit the thread gets so long at most. Last words take milliseconds, or 3 s where the store is gone; on rank 0, where
it ends with an exception, the verdict takes a few seconds."""


_sessions = count(1)
"""Of this process, whoever started them: no guard may hear what an earlier one was told."""


class GuardThread:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.session: Session | None = None
        self.died = ""
        """Why the thread ended before its time."""
        self._stop = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, daemon=True, name="forkpoint-guard")

    def start(self) -> None:
        self._thread.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Before the interpreter goes: a thread inside the store's C++ at that moment would bring the process down."""
        self._stop.set()
        if os.getpid() == self._pid and self._thread.is_alive():
            self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._watch_group()
        except Exception as error:  # noqa: BLE001 whatever it is, training goes on
            self.died = f"{type(error).__name__}: {error}"
            where = traceback.extract_tb(error.__traceback__)[-1]
            say(f"forkpoint guard: stopped by its own error ({self.died}, {where.name}); training goes on unwatched")

    def _watch_group(self) -> None:
        """One process group, from when it is there until it is not."""
        while not is_running():
            if self._stop.wait(self.settings.every_s):
                return
        group = distributed_c10d.group.WORLD
        session = Session(self.settings, next(_sessions))
        if session.world_size > 1:
            self.session = session
        while not self._stop.is_set() and distributed_c10d.group.WORLD is group:
            if session.world_size > 1:
                session.look()
            # At the same moments of the clock on all ranks: together they hold up a step once, not each in its turn.
            self._stop.wait(session.every_s - time.time() % session.every_s)
        if session.world_size > 1:
            session.end()
