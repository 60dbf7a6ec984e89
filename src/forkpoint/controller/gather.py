"""The answers of all ranks to one message, or what became of those that do not answer."""

import re
import time
from dataclasses import dataclass, field
from math import prod
from typing import Any

from monarch._rust_bindings.monarch_hyperactor.supervision import SupervisionError
from monarch.actor import Future  # pyright: ignore[reportMissingTypeStubs] - it has none

from forkpoint.controller.answers import Death, Raised
from forkpoint.controller.processes import RankProcesses

POLL_S = 0.05
"""How late a death may be seen. An answer is seen at once."""
SETTLE_S = 1.0
"""Ranks that a failure takes down report it as soon as their connection is reset; the others wait for the failed rank."""

MAX_REASON = 200
"""Characters: a sentence."""

_COORDINATE = re.compile(r"\{((?:'[^']{1,50}': \d{1,7}/\d{1,7}(?:, )?){1,8})\}")
_PART = re.compile(r": (\d{1,7})/(\d{1,7})")


@dataclass(slots=True)
class CallAnswers:
    sent: list[Future[Any]]
    """The next to be answered first, whoever answers. Once Monarch knows that a process has ended, all of them say so."""
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
    """Waits for everybody; after a failure only until it is quiet, and never longer than `limit_s`."""
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
    """Monarch names a place in the mesh, `{'hosts': 1/2, 'gpus': 3/8}`: ranks count through it row by row."""
    found = _COORDINATE.search(words)
    if found is None:
        return None
    parts = [(int(at), int(size)) for at, size in _PART.findall(found[1])]
    return sum(at * prod(size for _, size in parts[n + 1 :]) for n, (at, _) in enumerate(parts))


def last_line(words: str) -> str:
    """The reason stands last: `the process this actor was running on exited with non-zero code 7`."""
    last = words.strip().splitlines()[-1].strip()
    return last.replace("the process this actor was running on", "its process")[:MAX_REASON]
