"""`--hang-after`: the guard inside the ranks has written their dumps, and nothing moves any more.

Only the guard knows whether ranks move. An alarm that it raises at once (mismatched calls) need not be a hang: then the
job hangs once no rank has logged anything for as long as the user chose (`live/stall.py`).
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from forkpoint.live.stall import Stillness, has_stalled
from forkpoint.run.folders import AttemptFolder
from forkpoint.run.stillness import folder_state

_LOOK_S = 1.0


@dataclass(slots=True)
class HangWatch:
    """Looks from a thread of its own, once a second, until `end`."""

    place: AttemptFolder
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
        logs = Stillness(folder_state(self.place.logs), time.monotonic())
        while not self._over.wait(_LOOK_S):
            alarm = find_alarm(self.place.guard)
            quiet_s = logs.see(folder_state(self.place.logs), time.monotonic())
            if alarm and is_hang(alarm, quiet_s, self.hang_s):
                self.alarm = alarm
                self.on_hang()
                return


def find_alarm(guard: Path) -> Path | None:
    """The last folder that is complete: the guard writes its verdict last."""
    found = sorted(path.parent for path in guard.glob("*/verdict.json"))
    return found[-1] if found else None


def is_hang(alarm: Path, quiet_s: float, hang_s: float) -> bool:
    """`quiet_s`: for how long no rank has logged anything."""
    return has_stalled(quiet_s, hang_s, waiting=True) or _guard_saw_stall(alarm)


def _guard_saw_stall(alarm: Path) -> bool:
    try:
        return json.loads((alarm / "ranks.json").read_text())["stalled"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False
