"""Runs a program as it is and counts, beside it, for how long its guard heard the others: a soak must not sleep through."""

import atexit
import runpy
import sys
import threading
import time

_EVERY_S = 0.5
_heard: list[float] = [0.0]


def listen() -> None:
    while True:
        time.sleep(_EVERY_S)
        guard = sys.modules.get("forkpoint.guard")
        status = guard.status() if guard is not None and hasattr(guard, "status") else None
        if status is not None and status.running and not status.blind:
            _heard[0] += _EVERY_S


threading.Thread(target=listen, daemon=True).start()
atexit.register(lambda: print(f"HEARD {_heard[0]:.1f}", flush=True))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
