"""The answers of all ranks to one message, and what happened to the ranks that do not answer."""

import os
import re
import select
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any

from monarch._rust_bindings.monarch_hyperactor.supervision import SupervisionError
from monarch.actor import Future

from forkpoint.controller.answers import Death, Hello, Raised

# ---------------------------------------------------------------------------------------------------------------------
# The ranks' processes as the kernel shows them: which have ended, and in what order. Children of this process only.
#
# Monarch reports a death after some seconds; the kernel at once. (But not how: Monarch collects the exit code.)


class RankProcesses:
    """Uses pidfds: a process that later reuses the pid is neither watched nor killed."""

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
        """Sends SIGKILL to those that still run: they may be stuck in a collective forever."""
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
        """A pidfd becomes readable when its process ends."""
        poll = select.poll()
        for handle in self._handles:
            poll.register(handle, select.POLLIN)
        while len(self._deaths) < len(self._handles):
            ended = [handle for handle, _ in poll.poll()]
            moment = len(self._deaths)
            self._deaths += [Death(self._handles[handle], "", moment) for handle in ended]
            for handle in ended:
                poll.unregister(handle)


# ---------------------------------------------------------------------------------------------------------------------
# The answers of all ranks to one message, or what happened to those that do not answer.

POLL_S = 0.05
"""How late a death may be seen. An answer is seen at once."""
SETTLE_S = 1.0
"""Ranks that fail because of another report it as soon as their connection is reset; the rest wait for the failed rank."""

MAX_REASON = 200
"""Characters: a sentence."""

_COORDINATE = re.compile(r"\{((?:'[^']{1,50}': \d{1,7}/\d{1,7}(?:, )?){1,8})\}")
_PART = re.compile(r": (\d{1,7})/(\d{1,7})")


@dataclass(slots=True)
class CallAnswers:
    sent: list[Future[Any]]
    """In the order of answers, not of ranks. Once Monarch knows that a process has ended, all of them raise that."""
    size: int
    answers: list[Any] = field(default_factory=list[Any])
    """In the order in which they came."""
    dead: list[Death] = field(default_factory=list[Death])

    @property
    def silent(self) -> tuple[int, ...]:
        heard = {answer.rank for answer in self.answers} | {death.rank for death in self.dead}
        return tuple(rank for rank in range(self.size) if rank not in heard)

    @property
    def failed(self) -> bool:
        return bool(self.dead) or any(isinstance(answer, Raised) for answer in self.answers)


def gather(got: CallAnswers, processes: RankProcesses, limit_s: float) -> None:
    """Waits for all ranks; after a failure only a little longer, and never longer than `limit_s`."""
    ends = time.monotonic() + limit_s
    while True:
        known = {death.rank for death in got.dead}
        news = [death for death in processes.deaths() if death.rank not in known]
        got.dead += news
        if not got.silent or not got.sent or time.monotonic() >= ends:
            return
        if (_take(got) and got.failed) or news:
            ends = min(ends, time.monotonic() + SETTLE_S)


def _take(got: CallAnswers) -> bool:
    """The next answer, if one comes soon."""
    try:
        got.answers.append(got.sent[0].get(timeout=POLL_S))
    except TimeoutError:
        return False
    except SupervisionError as error:
        rank = rank_in(str(error))
        if rank is None:
            raise
        if rank not in {death.rank for death in got.dead}:
            got.dead.append(Death(rank, last_line(str(error)), len(got.dead)))
    del got.sent[0]
    return True


def rank_in(words: str) -> int | None:
    """Monarch names a position in the mesh, `{'hosts': 1/2, 'gpus': 3/8}`; ranks are numbered row by row."""
    found = _COORDINATE.search(words)
    if found is None:
        return None
    parts = [(int(at), int(size)) for at, size in _PART.findall(found[1])]
    return sum(at * prod(size for _, size in parts[n + 1 :]) for n, (at, _) in enumerate(parts))


def last_line(words: str) -> str:
    """The reason is on the last line: `the process this actor was running on exited with non-zero code 7`."""
    last = words.strip().splitlines()[-1].strip()
    return last.replace("the process this actor was running on", "its process")[:MAX_REASON]
