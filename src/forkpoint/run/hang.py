"""`--hang-after`: the guard inside the ranks has written their dumps, and nothing moves any more.

The guard alone knows whether ranks move. What it says at once (calls that do not fit) need not be a hang, so then the logs
decide, too: an alarm, and no word from any rank for as long as the user said.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from forkpoint.run.folders import Place
from forkpoint.run.stillness import folder_state

_LOOK_S = 1.0


@dataclass(slots=True)
class HangWatch:
    """Looks from a thread of its own, once a second, until `end`."""

    place: Place
    hang_s: float
    on_hang: Callable[[], None]
    alarm: Path | None = None
    """The guard's folder, once the job was found to hang."""
    _over: Event = field(default_factory=Event)

    def begin(self) -> None:
        Thread(target=self._look, daemon=True, name="hang-watch").start()

    def end(self) -> None:
        self._over.set()

    def _look(self) -> None:
        said, quiet_since = folder_state(self.place.logs), time.monotonic()
        while not self._over.wait(_LOOK_S):
            alarm = find_alarm(self.place.guard)
            now = folder_state(self.place.logs)
            if now != said:
                said, quiet_since = now, time.monotonic()
            if alarm and is_hang(alarm, time.monotonic() - quiet_since, self.hang_s):
                self.alarm = alarm
                self.on_hang()
                return


def find_alarm(guard: Path) -> Path | None:
    """The last folder that is complete: the guard writes its verdict last."""
    found = sorted(path.parent for path in guard.glob("*/verdict.json"))
    return found[-1] if found else None


def is_hang(alarm: Path, quiet_s: float, hang_s: float) -> bool:
    """`quiet_s`: for how long no rank has said anything."""
    return quiet_s > hang_s or _has_stalled(alarm)


def _has_stalled(alarm: Path) -> bool:
    try:
        return json.loads((alarm / "ranks.json").read_text())["stalled"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False
